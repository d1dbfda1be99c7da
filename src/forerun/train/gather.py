"""From a target to a corpus: prompts that it writes itself, or the user's, answered and captured in one pass."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from time import perf_counter
from typing import Any, Protocol

from forerun.assemble import Config, Foundation, engine_over, foundation
from forerun.core.errors import SpecError
from forerun.text.words import TextWords
from forerun.train.conversation import SHORTEST, Manner, Speaker, Speech
from forerun.train.corpus import SHARD_TOKENS, Corpus, Facts
from forerun.train.data import OwnData
from forerun.train.domains import Mix
from forerun.train.halting import Halt
from forerun.train.intake import Budget, Intake, Pace
from forerun.train.news import News
from forerun.train.overlap import Overlap
from forerun.train.sample import Sample
from forerun.train.synthesis import Ended, converse
from forerun.train.witness import Witness

WIDTH = 160
"""Conversations at a time: past this the native runtime gains little more."""
KV_PER_SEQUENCE = 512
SAVED_EACH_S = 20.0
"""How often what has ended is written to disk, full shards apart."""
_GOLDEN = 0.6180339887498949  # its multiples spread evenly over [0, 1)
_EMPTY_MOST = 400  # conversations in a row of which nothing comes before we give up
REPEATED = "of a prompt that was asked before"


class Source(Protocol):
    """Where conversations come from."""

    @property
    def asked(self) -> str:
        """In words, for the corpus's facts."""
        ...

    @property
    def digest(self) -> str:
        """What changes with any of the prompts."""
        ...

    @property
    def count(self) -> int | None:
        """How many there are; None is without end."""
        ...

    def begin(self, speaker: Speaker, number: int, rng: random.Random) -> Speech:
        """The conversation of that number."""
        ...


@dataclass(frozen=True, slots=True)
class SelfMade:
    """Prompts that the target writes, over a mix of domains."""

    mix: Mix
    asked: str
    count: None = None

    @property
    def digest(self) -> str:
        return sha256(repr(self.mix).encode()).hexdigest()[:16]

    def begin(self, speaker: Speaker, number: int, rng: random.Random) -> Speech:
        domain, opener = self.mix.opener((number * _GOLDEN + 0.5) % 1.0)
        return speaker.speak(domain, opener, rng)


@dataclass(frozen=True, slots=True)
class Own:
    """Prompts of the user's own, each answered once."""

    data: OwnData

    @property
    def asked(self) -> str:
        return self.data.asked

    @property
    def digest(self) -> str:
        return self.data.digest

    @property
    def count(self) -> int:
        return len(self.data.conversations)

    def begin(self, speaker: Speaker, number: int, rng: random.Random) -> Speech:
        one = self.data.conversations[number]
        return speaker.answer(one.domain, one.turns, rng, one.system)


def target_for(model: str, width: int = WIDTH, **options: Any) -> Foundation:
    """The target as it is used for capture: bf16 weights unless said otherwise, memory for `width` conversations."""
    given = {"weights": "bf16", "max_batch": width, "kv_tokens": width * KV_PER_SEQUENCE, **options}
    return foundation(Config(model, **given))


def facts_of(
    base: Foundation, taps: Sequence[int], seed: int, source: Source, manner: Manner, avoid: Overlap | None = None
) -> Facts:
    """What a corpus of this target and source is of; SpecError for taps that it has not."""
    spec = base.target.spec
    for tap in taps:
        if not 0 <= tap <= spec.layers:
            raise SpecError(f"tap {tap} is past the last layer of {spec.name}: allowed 0..{spec.layers}")
    return Facts(
        spec.name, spec.fingerprint, spec.vocab_size, spec.hidden_size, spec.layers, tuple(taps), seed, source.asked,
        asdict(manner), source.digest, avoid.digest if avoid else "", base.config.weights,
    )  # fmt: skip


def gather(
    base: Foundation,
    corpus: Corpus,
    source: Source,
    manner: Manner,
    budget: Budget,
    told: Callable[[News], None],
    halt: Halt | None = None,
    avoid: Overlap | None = None,
    width: int = WIDTH,
) -> dict[str, int]:
    """Hold conversations until there are enough, or the source has no more; returns what was left out, and how often.

    Those that share a run of words with `avoid`, or are of a prompt that was asked before, are left out. Where it is
    told to halt, what has ended is saved. SpecError if the target gives nothing that can be used: no prompts that end,
    or none of its own in its vocabulary.
    """
    return _Gathering(base, corpus, source, manner, budget, told, halt or Halt(), avoid, width).run()


class _Gathering:
    """One run of `gather`."""

    def __init__(
        self, base: Foundation, corpus: Corpus, source: Source, manner: Manner, budget: Budget,
        told: Callable[[News], None], halt: Halt, avoid: Overlap | None, width: int,
    ) -> None:  # fmt: skip
        if not isinstance(base.words, TextWords):
            raise SpecError(f"{base.target.spec.name} has no tokenizer: prompts cannot be written with it")
        self._base, self._words, self._corpus, self._source = base, base.words, corpus, source
        self._speaker, self._budget, self._told, self._halt, self._avoid = (
            Speaker(base.words, manner),
            budget,
            told,
            halt,
            avoid,
        )
        self._intake = Intake(budget.tokens, isinstance(source, SelfMade), 0.6 * manner.answer_tokens)
        written = manner.prompt_tokens / 3 if isinstance(source, SelfMade) else 0
        self._pace = Pace(width, budget.until, written + 0.8 * manner.answer_tokens)
        self._ended = set(corpus.ended)
        self._fresh: dict[int, tuple[Sample, str]] = {}
        """What is not on disk yet."""
        self._left_out: Counter[str] = Counter()
        self._empty = 0
        self._next = 0
        self._saved = self._began = perf_counter()
        found = {place.number: place for place in corpus.found}
        for number in sorted(corpus.ended):
            place = found.get(number)
            self._intake.put(number, place.prompt if place else "", place.learnt if place else 0)
        self._before = self._intake.learnt + self._intake.waiting

    def run(self) -> dict[str, int]:
        witness = Witness(self._corpus.facts.taps)
        at = perf_counter()
        with self._halt.careful(), engine_over(self._base, "none", witness) as engine:
            for step in converse(engine, witness, self._begin, self._corpus.facts.seed, self._number):
                now = perf_counter()
                self._pace.told(now - at, tuple(one.steps for one in step.ended if one.sample), now)
                at = now
                for one in step.ended:
                    self._hear(one)
                self._tell(step.said, now)
                if self._enough(now) or self._halt.asked:
                    break
                if (
                    sum(len(s.tokens) for s, _ in self._fresh.values()) >= SHARD_TOKENS
                    or now - self._saved >= SAVED_EACH_S
                ):
                    self._save(whole=False)
        if self._halt.asked and not self._intake.full:
            self._save(whole=False)
            self._halt.check()
        self._intake.take_all()
        self._save(whole=True)
        if self._intake.repeated:
            self._left_out[REPEATED] = len(self._intake.repeated)
        if not self._corpus.places and self._budget.until is not None and not self._left_out:
            raise SpecError(
                f"no conversation ends in the time that is given to the data: one takes about "
                f"{self._pace.needed():.0f} s here; give more --minutes, or shorter answers with --answer-tokens"
            )
        self._halt.check()
        return dict(self._left_out)

    def _number(self, running: int) -> int | None:
        now = perf_counter()
        if (
            self._enough(now)
            or self._halt.asked
            or not self._intake.wants(running)
            or not self._pace.room(running, now)
        ):
            return None
        while self._next in self._ended:
            self._next += 1
        if self._source.count is not None and self._next >= self._source.count:
            return None
        self._ended.add(self._next)
        return self._next

    def _enough(self, now: float) -> bool:
        return self._intake.full or (self._budget.until is not None and now >= self._budget.until)

    def _begin(self, number: int, rng: random.Random) -> Speech:
        return self._source.begin(self._speaker, number, rng)

    def _hear(self, one: Ended) -> None:
        why = self._why_not(one.sample)
        self._corpus.ended.add(one.number)
        if one.unasked:
            self._left_out["turns for which the context had no room"] += one.unasked
        before = len(self._intake.repeated)
        if one.sample is None or why:
            self._left_out[why] += 1
            self._intake.put(one.number)
        else:
            self._fresh[one.number] = (one.sample, one.prompt)
            self._intake.put(one.number, one.prompt, one.sample.learnt)
        repeated = len(self._intake.repeated) > before
        self._empty = self._empty + 1 if why or repeated else 0
        if self._empty > _EMPTY_MOST:
            raise SpecError(
                f"{self._base.target.spec.name}: nothing came of {self._empty} conversations in a row (the user's turn "
                "did not end, or was said before): take other domains, or give prompts with --data"
            )

    def _why_not(self, sample: Sample | None) -> str:
        """Why a conversation is left out; empty if it is not."""
        if sample is None or not sample.learnt:
            return f"without an answer of {SHORTEST} tokens, or without room for one"
        if self._avoid and self._words.decode(sample.tokens.tolist()) in self._avoid:
            return "that --avoid keeps out"
        return ""

    def _save(self, whole: bool) -> None:
        """Write what has ended; at the end, only what belongs to the corpus."""
        taken = self._intake
        chosen = {
            number: one
            for number, one in sorted(self._fresh.items())
            if not whole or (number < taken.upto and number not in taken.repeated)
        }
        if chosen:
            samples, prompts = zip(*chosen.values(), strict=True)
            gone = self._fresh.keys() - chosen.keys() if whole else set()
            dropped = {number for number in gone if number >= taken.upto}
            self._corpus.add(samples, prompts, self._corpus.ended - dropped)
        self._fresh.clear()
        self._corpus.keep(taken.upto, taken.repeated, whole)
        self._saved = perf_counter()

    def _tell(self, said: int, now: float) -> None:
        taken, source = self._intake, self._source
        done = taken.learnt + taken.waiting + said
        rate = (done - self._before) / max(1e-9, now - self._began)
        lefts = [] if self._budget.until is None else [self._budget.until - now]
        total = taken.tokens
        if source.count is not None:
            total = min(total or 1 << 60, round(source.count * taken.mean))
        if total is not None and rate:
            lefts.append((total - done) / rate)
        left = max(0.0, min(lefts)) if lefts else None
        self._told(
            News("answers", done, max(total, done) if total else None, "tokens", left, f"{taken.taken} conversations")
        )
