"""`forerun train` from end to end: a corpus, a head, its measured tau, a folder that can be drafted with at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter, strftime
from typing import Any

from forerun.assemble import Foundation
from forerun.core.errors import SpecError
from forerun.heads import fit_of
from forerun.models.heads.head import Head
from forerun.models.heads.opening import open_head
from forerun.targets.load import usable_device
from forerun.targets.threads import torch_threads
from forerun.train.batches import batches
from forerun.train.card import readme
from forerun.train.conversation import Manner
from forerun.train.corpus import Corpus
from forerun.train.domains import Mix
from forerun.train.ends import Ends
from forerun.train.gather import WIDTH, FromFiles, Progress, SelfMade, Source, facts_of, gather, target_for
from forerun.train.kinds import check, pupil
from forerun.train.overlap import Overlap
from forerun.train.recipe import Recipe, Taught
from forerun.train.tau import Measurer, held_out
from forerun.train.trainer import Course, News, State, train
from forerun.weights.folder import open_checkpoint
from forerun.weights.pull import resolve

DEFAULT_MIX = "chat:3,code:3,math:3,writing:2,knowledge:2,reasoning:2,russian:2"
_CORPUS_SHARE = 0.4  # of the minutes, where the corpus is made in the same run


_LEAST = {"minutes": 0.1, "steps": 1, "tokens": 1, "width": 1, "batch": 16, "measures": 1, "threads": 1}


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked of one run; sizes that are None follow from `minutes`."""

    kind: Taught
    model: str
    out: Path
    minutes: float | None = None
    corpus: Path | None = None
    also: tuple[Path, ...] = ()
    """More data that is captured already."""
    begin: Path | None = None
    """A head's folder that it begins from."""
    tokens: int | None = None
    data: tuple[Path, ...] = ()
    domain: str = DEFAULT_MIX
    avoid: tuple[Path, ...] = ()
    taps: tuple[int, ...] | None = None
    manner: Manner = field(default_factory=Manner)
    recipe: dict[str, Any] = field(default_factory=dict)
    steps: int | None = None
    rate: float = 3e-3
    batch: int = 2048
    measures: int = 4
    seed: int = 0
    width: int = WIDTH
    weights: str = "bf16"
    threads: int | None = None
    device: str = "cpu"
    command: str = ""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise SpecError(f"{name} must be at least {least:g}, got {value}")
        if not 0 < self.rate < 1:
            raise SpecError(f"rate must be above 0 and below 1, got {self.rate}")
        if not 4 <= self.manner.answer_tokens <= 1 << 16:
            raise SpecError(f"answers have from 4 to {1 << 16} tokens, got {self.manner.answer_tokens}")


CHANGES = (
    "medusa2 trains the target too: the result is another target, whose text differs from that of the one it began as"
)


@dataclass(frozen=True, slots=True)
class Watch:
    """Who hears of a run."""

    corpus: Callable[[Progress], None]
    training: News
    said: Callable[[str], None]


def run(job: Job, watch: Watch) -> dict[str, Any]:
    """Do it; returns what the head's card says in numbers."""
    started = perf_counter()
    base = _base(job)
    begun = _begun(job, base, watch)
    job = replace(job, taps=_taps(job, base, begun))
    recipe, ends = (
        Recipe(job.kind, **job.recipe, seed=job.seed, begun=begun),
        Ends.of(open_checkpoint(resolve(job.model))),
    )
    check(recipe, ends.config, job.taps or ())  # before an hour of answers
    others = [Corpus(folder) for folder in job.also]
    corpus = _corpus(job, base, watch, started)
    gathered = perf_counter() - started
    for other in others:
        corpus.join(other)
    learner = pupil(recipe, corpus, ends).on(usable_device(job.device))
    places = [place for place in corpus if not place.held_out]
    measurer = Measurer(base, held_out(corpus, 4))
    if job.kind == "medusa2":
        watch.said(CHANGES)
    watch.said(f"training on {len(places)} conversations, {sum(place.learnt for place in places)} tokens to learn")
    left = None if job.minutes is None else max(60.0, job.minutes * 60 - (perf_counter() - started))
    course = Course(
        steps=job.steps, seconds=None if job.steps else left or 1800.0, rate=job.rate, measures=job.measures,
        gentle=learner.gentle, late=learner.late,
    )  # fmt: skip
    job.out.mkdir(parents=True, exist_ok=True)
    with torch_threads(job.threads):
        state = train(
            State(learner.weights, mark=learner.mark), learner.lesson, course,
            lambda step: batches(corpus, places, job.seed, job.batch, step),
            lambda w: measurer(learner.finish(w)).all, job.out / "training.pt", watch.training,
        )  # fmt: skip
    made = learner.finish(state.best)
    tau = measurer(made)
    card = _card(job, corpus, state, course, asdict(tau), gathered, perf_counter() - started, made.parameters)
    if begun:
        card["begun_from"] = {"folder": str(job.begin), "kind": begun.kind, **begun.card}
    made.write(job.out, card)
    (job.out / "README.md").write_text(readme(card), encoding="utf-8")
    (job.out / "training.pt").unlink(missing_ok=True)
    return card


def _base(job: Job) -> Foundation:
    """The target, ready to answer; `weights` are of the native runtime, another device has its own bfloat16."""
    if usable_device(job.device).type == "cpu":
        return target_for(job.model, job.width, weights=job.weights, threads=job.threads)
    return target_for(job.model, job.width, weights="auto", dtype="bfloat16", device=job.device)


def _begun(job: Job, base: Foundation, watch: Watch) -> Head | None:
    if job.begin is None:
        return None
    head, notes = open_head(job.begin, fit_of(base.target))
    for note in notes:
        watch.said(note)
    return head


def gather_only(job: Job, watch: Watch) -> dict[str, Any]:
    """The corpus alone, in `job.corpus` or `job.out`; returns what there is of it."""
    started = perf_counter()
    base = _base(job)
    job = replace(job, corpus=job.corpus or job.out, taps=_taps(job, base))
    corpus = _corpus(job, base, watch, started, 1.0)
    return {
        "folder": str(corpus.folder), "conversations": len(corpus), "learnt": corpus.learnt, "tokens": corpus.tokens,
        "seconds": round(perf_counter() - started, 1), "command": job.command,
    }  # fmt: skip


def _taps(job: Job, base: Foundation, begun: Head | None = None) -> tuple[int, ...]:
    """Layers whose inputs are captured: those asked for, or of the head that it begins from, or three as published."""
    layers = base.target.spec.layers
    return job.taps or (begun.config.taps if begun else ()) or tuple(dict.fromkeys((2, layers // 2, layers - 3)))


def _corpus(job: Job, base: Any, watch: Watch, started: float, share: float = _CORPUS_SHARE) -> Corpus:
    folder = job.corpus or job.out / "corpus"
    source: Source = FromFiles(job.data) if job.data else SelfMade(Mix.parse(job.domain), job.domain)
    facts = facts_of(base, (*(job.taps or ()), base.target.spec.layers), job.seed, source, job.manner)
    corpus = Corpus.begin(folder, facts)
    end = None if job.minutes is None else started + job.minutes * 60 * share
    goal = job.tokens if job.tokens is not None else (None if end else 200_000)

    def enough(learnt: int) -> bool:
        return (goal is not None and learnt >= goal) or (end is not None and perf_counter() >= end)

    going_on = share < 1 and (job.out / "training.pt").exists()  # what is half learnt, is learnt from the same data
    if not enough(corpus.learnt) and not (going_on and corpus.learnt):
        if goal:
            watch.said(f"up to {goal * facts.token_bytes * 1.3 / 2**30:.1f} GiB of disk for {goal} answered tokens")
        gather(base, corpus, source, job.manner, enough, watch.corpus, Overlap.of_files(job.avoid), job.width)
        corpus = Corpus(folder)
    if not any(not place.held_out for place in corpus):
        raise SpecError(f"{folder} holds no conversation to train on: give it more time, or more prompts")
    return corpus


def _card(
    job: Job, corpus: Corpus, state: State, course: Course, tau: dict[str, Any], gathered: float, took: float, size: int
) -> dict[str, Any]:
    domains: dict[str, int] = {}
    for place in corpus:
        domains[place.domain] = domains.get(place.domain, 0) + place.learnt
    return {
        "kind": job.kind, "model": corpus.facts.model, "fingerprint": corpus.facts.fingerprint, "command": job.command,
        "date": strftime("%Y-%m-%d"), "parameters": size, "taps": list(corpus.facts.taps[:-1]),
        "corpus": {
            "asked": corpus.facts.asked, "conversations": len(corpus), "learnt": corpus.learnt, "tokens": corpus.tokens,
            "by_domain": domains, "manner": dict(corpus.facts.manner), "seed": corpus.facts.seed,
        },
        "recipe": job.recipe, "rate": job.rate, "batch": job.batch, "steps": state.step, "seed": job.seed,
        "losses": state.losses[-1:], "agreement": [round(value, 4) for value in state.agreement], "taus": state.taus,
        "tau": tau,
        "seconds": {"corpus": round(gathered, 1), "all": round(took, 1), "training": round(state.seconds, 1)},
    }  # fmt: skip
