"""`forerun train` from end to end: a corpus, a head, its measured tau, a folder that can be drafted with at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch

from forerun.assemble import Foundation
from forerun.core.errors import SpecError
from forerun.heads import fit_of, head_folder
from forerun.models.heads.head import Head
from forerun.models.heads.opening import open_head
from forerun.targets.load import usable_device
from forerun.targets.threads import torch_threads
from forerun.train.batches import batches
from forerun.train.card import card_of, readme
from forerun.train.corpus import Corpus, Facts, Place
from forerun.train.disk import check_room, size_of
from forerun.train.ends import Ends, faster_dtype
from forerun.train.folder import TRAINING, Account, card_in, put, under_way
from forerun.train.gather import facts_of, gather, target_for
from forerun.train.intake import Budget
from forerun.train.job import Data, Job, settings
from forerun.train.kinds import check, pupil
from forerun.train.made import MadeHead
from forerun.train.news import News, Watch
from forerun.train.recipe import Pupil, Recipe, mark_of
from forerun.train.tau import Measurer, Question, Tau, as_lines, split
from forerun.train.trainer import Course, State, Told, kept_size, train
from forerun.weights.folder import open_checkpoint
from forerun.weights.pull import resolve

_CORPUS_SHARE = 0.4  # of the minutes, where the corpus is made in the same run
_TOKENS = 200_000  # answered, if nobody says how much
_SECONDS = 1800.0  # of training, if nobody says how long
_HELD_OUT = 4  # prompts of each domain that tau is measured on
_PROMPTED = 1.3  # tokens on disk for each answered one
_EXPORT_S = 3.0  # kept free of the minutes for the files
CHANGES = (
    "medusa2 trains the target too: the result is another target, whose text differs from that of the one it began as"
)


@dataclass(frozen=True, slots=True)
class Made:
    """What a run made, or had made already."""

    card: dict[str, Any]
    state: Literal["made", "done already"]
    size: int = 0


def run(job: Job, watch: Watch) -> Made:
    """Do it, or go on with it."""
    data = Data.of(job)
    account = under_way(job.out, settings(job, data), job.overwrite)
    if account is None:
        return Made(card_in(job.out) or {}, "done already")
    watch = _accounted(watch, account)
    try:
        return _Run(job, data, account, watch).run()
    finally:
        account.leave(_corpus_folder(job))


def _corpus_folder(job: Job) -> Path:
    return job.corpus or job.out / "corpus"


def gather_only(job: Job, watch: Watch) -> Made:
    """The corpus alone, in `job.corpus` or `job.out`."""
    job = replace(job, out=job.corpus or job.out, corpus=None)
    data = Data.of(job)
    asked = settings(job, data)
    if (job.out / "corpus.json").exists() and not job.overwrite and (there := Corpus(job.out)).by == asked:
        return Made(_told_of(there, 0.0, job), "done already")
    account = under_way(job.out, asked, job.overwrite, names=())
    assert account is not None
    account.makes = True
    watch = _accounted(watch, account)
    try:
        base = _base(job)
        job = replace(job, taps=_taps(job, base))
        gathering = _Gatherer(job, base, data, account, watch, job.out, 1.0)
        corpus = gathering.made(_facts(job, base, data), job.tokens is None and job.minutes is None)
        corpus.sign(account.settings)
        found = _told_of(corpus, account.spent, job)
        account.close()
    finally:
        account.leave(job.out)
    return Made(found, "made")


def _told_of(corpus: Corpus, seconds: float, job: Job) -> dict[str, Any]:
    return {
        "kind": "corpus", "folder": str(corpus.folder), "conversations": len(corpus), "learnt": corpus.learnt,
        "tokens": corpus.tokens, "seconds": round(seconds, 1), "command": job.command,
    }  # fmt: skip


def _accounted(watch: Watch, account: Account) -> Watch:
    """The watch, with the account written down now and then."""

    def news(told: News) -> None:
        account.tick()
        watch.news(told)

    if account.sessions > 1:
        watch.said(f"going on with the run in {account.out}, which took {account.spent:.0f} s so far")
    return replace(watch, news=news)


class _Run:
    """One run of `run`."""

    def __init__(self, job: Job, data: Data, account: Account, watch: Watch) -> None:
        self._data, self._account, self._watch = data, account, watch
        others = [Corpus(folder) for folder in job.also]
        self._base = _base(job)
        self._begun = _begun(job, self._base, watch)
        handed = _handed_in(job, account)
        taps = handed.facts.taps[:-1] if handed and job.taps is None else _taps(job, self._base, self._begun)
        self._job = job = replace(job, taps=taps)
        account.dtype = account.dtype or str(faster_dtype(usable_device(job.device))).removeprefix("torch.")
        self._ends = Ends.of(open_checkpoint(resolve(job.model)), getattr(torch, account.dtype))
        # A job of the kind `corpus` never comes here; the options of all others are a Recipe's fields.
        self._recipe = Recipe(job.kind, **job.recipe, seed=job.seed, begun=self._begun)  # type: ignore[arg-type]
        check(self._recipe, self._ends.config, taps)  # before an hour of answers
        corpus = _used(job, handed, _facts(job, self._base, data), watch) if handed else self._gathered()
        places = corpus.within(job.tokens) if job.tokens else list(corpus)
        mine = Corpus(corpus.folder)
        mine.places = places
        for other in others:
            mine.join(other)
        self._corpus = mine

    def _gathered(self) -> Corpus:
        job, folder = self._job, _corpus_folder(self._job)
        self._account.makes = True
        gatherer = _Gatherer(job, self._base, self._data, self._account, self._watch, folder, _CORPUS_SHARE)
        return gatherer.made(_facts(job, self._base, self._data), job.minutes is None and job.tokens is None)

    def run(self) -> Made:
        job, account, watch = self._job, self._account, self._watch
        learnt, questions = split(self._corpus, list(self._corpus), _HELD_OUT)
        with account.phase("features"):
            learner = pupil(self._recipe, self._corpus, self._ends, watch).on(usable_device(job.device))
        kept = job.out / TRAINING
        size = kept_size(learner.weights)
        if not kept.exists():
            check_room(job.out, {"training": 2 * size, "the result": sum(v.nbytes for v in learner.weights.values())})
        watch.said(
            f"learning from {len(learnt)} conversations, {sum(place.learnt for place in learnt)} tokens; saved in "
            f"{kept} on the way (up to {size_of(size)}, removed at the end)"
        )
        if job.kind == "medusa2":
            watch.said(CHANGES)
        measurer = _Remembering(Measurer(self._base, questions, watch=watch))
        with account.phase("measuring"):
            at = perf_counter()
            before = measurer(MadeHead(self._begun)) if self._begun else None
            weighing = perf_counter() - at if before else 0.0
        state = State(learner.weights, mark=f"{learner.mark} {_identity(self._corpus, self._begun)}")
        if self._begun and before and self._goes_on(learner):
            state.found(before.all)
        state = self._trained(state, learner, learnt, measurer, weighing, kept)
        made = learner.finish(state.best)
        with account.phase("measuring"):
            tau = measurer.known(state.best_tau) or measurer(made)
        card = card_of(job, self._corpus, learnt, state, tau, account, made, self._base.config.weights)
        if self._begun:
            card["begun_from"] = {
                "head": job.begin, "kind": self._begun.kind, "tau_here": before and before.all, **self._begun.card,
            }  # fmt: skip
        with watch.halt.careful():
            bytes_written = put(job.out, lambda folder: _write(made, folder, card, questions))
            account.close()
        return Made(card, "made", bytes_written)

    def _goes_on(self, learner: Pupil) -> bool:
        """Whether the start is the head that it begins from, as a whole, which then counts as measured."""
        made, begun = learner.finish(learner.weights), self._begun
        if not isinstance(made, MadeHead) or begun is None or made.head.config != begun.config:
            return False
        return begun.words is None or (made.head.words is not None and torch.equal(made.head.words, begun.words))

    def _trained(
        self, state: State, learner: Pupil, learnt: Sequence[Place], measurer: _Remembering, weighing: float, kept: Path
    ) -> State:
        job, account, watch = self._job, self._account, self._watch
        left = None if job.seconds is None else max(0.0, job.seconds - _EXPORT_S - account.spent)
        if left is None and job.steps is None:
            left = max(0.0, _SECONDS - account.seconds.get("training", 0.0))
        course = Course(
            steps=job.steps, seconds=left, rate=job.rate,
            measures=job.measures, dtype=self._ends.end.dtype, gentle=learner.gentle, late=learner.late,
            weighing=weighing or min(20.0, 0.08 * (left or 0.0)),
        )  # fmt: skip

        def heard(state: State, told: Told, left: float) -> None:
            agree = " ".join(f"{value:.2f}" for value in told.agreement)
            tau = f", tau {state.taus[-1][1]:.2f}" if state.taus else ""
            total = course.steps or state.step + left / max(1e-9, (state.seconds - state.measuring) / state.step)
            watch.news(
                News("training", state.step, total, "steps", left, f"loss {told.loss:.3f}, agreement {agree}{tau}")
            )

        def begun(step: int) -> Any:
            if step:
                watch.said(f"going on from step {step}")
            return batches(self._corpus, learnt, job.seed, job.batch, step)

        with torch_threads(job.threads), account.phase("training"):
            return train(
                state, learner.lesson, course, begun, lambda w: measurer(learner.finish(w)).all, kept, heard, watch.halt
            )


class _Remembering:
    """A measurer that knows what it measured."""

    def __init__(self, measurer: Measurer) -> None:
        self._measurer = measurer
        self._known: dict[float, Tau] = {}

    def __call__(self, made: Any) -> Tau:
        tau = self._measurer(made)
        self._known[tau.all] = tau
        return tau

    def known(self, tau: float) -> Tau | None:
        """What was measured with that over all."""
        return self._known.get(tau)


def _write(made: Any, folder: Path, card: dict[str, Any], questions: Sequence[Question]) -> None:
    made.write(folder, card)
    (folder / "README.md").write_text(readme(card), encoding="utf-8")
    (folder / "held_out.jsonl").write_text(as_lines(questions), encoding="utf-8")


def _identity(corpus: Corpus, begun: Head | None) -> str:
    """What changes with the conversations, and with the head that is begun from."""
    digest = sha256(repr([(str(p.path.parent), p.number, p.length, p.learnt) for p in corpus]).encode())
    for name in sorted(begun.tensors) if begun else ():
        digest.update(mark_of(begun.floats(name)).encode() if begun else b"")
    return digest.hexdigest()[:16]


def _base(job: Job) -> Foundation:
    """The target, ready to answer; `weights` are of the native runtime, another device has its own bfloat16."""
    if usable_device(job.device).type == "cpu":
        return target_for(job.model, job.width, weights=job.weights or "bf16", threads=job.threads)
    return target_for(job.model, job.width, weights="auto", dtype="bfloat16", device=job.device)


def _begun(job: Job, base: Foundation, watch: Watch) -> Head | None:
    if job.begin is None:
        return None
    fit = fit_of(base.target)
    head, notes = open_head(head_folder(job.begin, fit), fit)
    for note in notes:
        watch.said(note)
    return head


def _taps(job: Job, base: Foundation, begun: Head | None = None) -> tuple[int, ...]:
    """Layers whose inputs are captured: those asked for, or of the head that it begins from, or three as published."""
    layers = base.target.spec.layers
    return job.taps or (begun.config.taps if begun else ()) or tuple(dict.fromkeys((2, layers // 2, layers - 3)))


def _facts(job: Job, base: Foundation, data: Data) -> Facts:
    return facts_of(base, (*(job.taps or ()), base.target.spec.layers), job.seed, data.source, job.manner, data.avoid)


def _handed_in(job: Job, account: Account) -> Corpus | None:
    """A corpus that another run made: it is only read."""
    if job.corpus is None or account.makes or not (job.corpus / "corpus.json").exists():
        return None
    return Corpus(job.corpus)


def _used(job: Job, corpus: Corpus, facts: Facts, watch: Watch) -> Corpus:
    """`corpus`, if it is of this target and of what is asked for by name."""
    asked = {
        "fingerprint": True, "taps": True, "data": job.data or job.domain, "avoid": job.avoid,
        "manner": job.answer_tokens,
    }  # fmt: skip
    if odd := facts.odd(corpus.facts, [name for name, given in asked.items() if given]):
        what = "asked" if odd == "data" else odd
        mine, theirs = getattr(facts, what), getattr(corpus.facts, what)
        raise SpecError(
            f"{corpus.folder} holds a corpus with {what} {theirs!r}, this run asks for {mine!r}: leave that option "
            "out, or give another --corpus"
        )
    if job.tokens is not None and job.tokens > corpus.learnt:
        watch.said(
            f"{corpus.folder} holds {corpus.learnt} answered tokens, fewer than --tokens {job.tokens}, and stays as "
            f"it is; `forerun train corpus --out {corpus.folder} --tokens {job.tokens}` with its options adds to it"
        )
    return corpus


class _Gatherer:
    """Makes a corpus in `folder`, or goes on with it, in that share of the minutes."""

    def __init__(
        self, job: Job, base: Foundation, data: Data, account: Account, watch: Watch, folder: Path, share: float
    ) -> None:
        self._job, self._base, self._data, self._account, self._watch = job, base, data, account, watch
        self._folder, self._share = folder, share

    def made(self, facts: Facts, default: bool) -> Corpus:
        """The corpus; `default`: nobody says how large it is to be."""
        job, folder = self._job, self._folder
        if job.overwrite and self._account.sessions == 1 and job.corpus is None:
            self._clear(facts)
        goal = _TOKENS if default else job.tokens
        size = self._size(facts, goal)
        corpus = Corpus.begin(folder, facts)
        again = self._account.sessions > 1 or job.kind != "corpus"
        enough = corpus.learnt >= goal if goal is not None else again
        if not corpus.places or not corpus.whole or not enough:
            self._watch.said(size)
            corpus = self._more(corpus, goal)
        if not corpus.places:
            raise SpecError(f"{folder} holds no conversation to train on: give it more time, or more prompts")
        return corpus

    def _size(self, facts: Facts, goal: int | None) -> str:
        """How much of the disk the answers take; CapacityError if it has not the room."""
        each = facts.token_bytes * _PROMPTED
        if goal is None:
            return f"answers take {size_of(1000 * each)} of disk for 1000 tokens, in {self._folder}"
        there = Corpus(self._folder).learnt if (self._folder / "corpus.json").exists() else 0
        size = int(max(0, goal - there) * each)
        check_room(self._folder, {"answers": size})
        return f"answers take up to {size_of(size)} of disk in {self._folder}, for {goal} tokens"

    def _clear(self, facts: Facts) -> None:
        """Away with a corpus of other facts, which the run is told to write over."""
        if (self._folder / "corpus.json").exists() and Corpus(self._folder).facts != facts:
            for path in (*self._folder.glob("shard-*.safetensors"), *self._folder.glob("*.json")):
                if path.name in ("corpus.json", "kept.json") or path.suffix == ".safetensors":
                    path.unlink()

    def _more(self, corpus: Corpus, goal: int | None) -> Corpus:
        job, watch, account = self._job, self._watch, self._account
        for note in self._data.notes:
            watch.said(note)
        until = None
        if job.seconds is not None:
            until = perf_counter() + max(0.0, job.seconds * self._share - account.spent)
        with account.phase("answers"):
            left_out = gather(
                self._base, corpus, self._data.source, job.manner, Budget(goal, until), watch.news, watch.halt,
                self._data.avoid, job.width,
            )  # fmt: skip
        for what, count in left_out.items():
            watch.said(
                f"left out: {count} {what}" if what.startswith("turns") else f"left out: {count} conversations {what}"
            )
        given = self._data.source.count
        if given is not None and goal is not None and corpus.learnt < goal:
            watch.said(f"your {given} conversations gave {corpus.learnt} answered tokens, fewer than {goal}")
        return Corpus(self._folder)
