"""From a target to a corpus: prompts that it writes itself, or the user's, answered and captured in one pass."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from forerun.assemble import Config, Foundation, engine_over, foundation
from forerun.core.errors import SpecError
from forerun.text.words import TextWords
from forerun.train.conversation import Manner, Speaker, Speech
from forerun.train.corpus import SHARD_TOKENS, Corpus, Facts
from forerun.train.domains import Mix
from forerun.train.overlap import Overlap
from forerun.train.sample import Sample
from forerun.train.synthesis import converse
from forerun.train.witness import Witness
from forerun.workloads.files import from_path

WIDTH = 160
"""Conversations at a time: past this the native runtime gains little more."""
KV_PER_SEQUENCE = 512
_GOLDEN = 0.6180339887498949  # its multiples spread evenly over [0, 1)
_EMPTY_MOST = 400  # conversations in a row of which nothing comes before we give up


class Source(Protocol):
    """Where conversations come from."""

    @property
    def name(self) -> str:
        """For the corpus's facts."""
        ...

    def begin(self, speaker: Speaker, number: int, rng: random.Random) -> Speech | None:
        """The conversation of that number; None if there are no more."""
        ...


@dataclass(frozen=True, slots=True)
class SelfMade:
    """Prompts that the target writes, over a mix of domains."""

    mix: Mix
    name: str

    def begin(self, speaker: Speaker, number: int, rng: random.Random) -> Speech | None:
        domain, opener = self.mix.opener((number * _GOLDEN + 0.5) % 1.0)
        return speaker.speak(domain, opener, rng)


class FromFiles:
    """Prompts of the user's own, answered in turn, and again with other randomness once all are."""

    def __init__(self, paths: Sequence[Path], rounds: int = 1) -> None:
        loads = [from_path(path) for path in paths]
        self._prompts = [(load.name, prompt) for load in loads for prompt in load.prompts]
        self._rounds = rounds
        self.name = ", ".join(load.digest for load in loads)

    def begin(self, speaker: Speaker, number: int, rng: random.Random) -> Speech | None:
        if number >= len(self._prompts) * self._rounds:
            return None
        name, prompt = self._prompts[number % len(self._prompts)]
        return speaker.answer(prompt.category or name, prompt.turns, rng)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a corpus is, in this run."""

    learnt: int
    """Answered tokens, those of earlier runs included."""
    samples: int
    dropped: int
    """Conversations of which nothing came."""


def target_for(model: str, width: int = WIDTH, **options: Any) -> Foundation:
    """The target as it is used for capture: bf16 weights unless said otherwise, memory for `width` conversations."""
    given = {"weights": "bf16", "max_batch": width, "kv_tokens": width * KV_PER_SEQUENCE, **options}
    return foundation(Config(model, **given))


def facts_of(base: Foundation, taps: Sequence[int], seed: int, source: Source, manner: Manner) -> Facts:
    """What a corpus of this target and source is of; SpecError for taps that it has not."""
    spec = base.target.spec
    for tap in taps:
        if not 0 <= tap <= spec.layers:
            raise SpecError(f"tap {tap} is past the last layer of {spec.name}: allowed 0..{spec.layers}")
    return Facts(
        spec.name, spec.fingerprint, spec.vocab_size, spec.hidden_size, spec.layers, tuple(taps), seed, source.name,
        asdict(manner),
    )  # fmt: skip


def gather(
    base: Foundation,
    corpus: Corpus,
    source: Source,
    manner: Manner,
    enough: Callable[[int], bool],
    told: Callable[[Progress], None],
    avoid: Overlap | None = None,
    width: int = WIDTH,
) -> None:
    """Hold conversations until `enough(answered tokens)`, or until the source has no more.

    Those that share a run of words with `avoid`, or are of a prompt that was asked before, are dropped. SpecError if
    the target gives nothing that can be used: no prompts that end, or none of its own in its vocabulary.
    """
    if not isinstance(base.words, TextWords):
        raise SpecError(f"{base.target.spec.name} has no tokenizer: prompts cannot be written with it")
    witness = Witness(corpus.facts.taps)
    speaker = Speaker(base.words, manner)
    asked = {place.prompt for place in corpus.places}
    learnt, dropped, empty = corpus.learnt, 0, 0
    ended: set[int] = set()
    samples: list[Sample] = []
    prompts: list[str] = []

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            if enough(learnt):
                return
            if number not in corpus.ended:
                yield number

    def begin(number: int, rng: random.Random) -> Speech | None:
        return source.begin(speaker, number, rng)

    def flush() -> None:
        if samples:
            corpus.add(samples, prompts, ended)
            samples.clear()
            prompts.clear()

    with engine_over(base, "none", witness) as engine:
        for number, sample, prompt in converse(engine, witness, begin, corpus.facts.seed, numbers(), width):
            ended.add(number)
            text = base.words.decode(sample.tokens.tolist()) if sample is not None and avoid else ""
            if (
                sample is None
                or not sample.learnt
                or (isinstance(source, SelfMade) and prompt in asked)
                or (avoid and text in avoid)
            ):
                dropped, empty = dropped + 1, empty + 1
                if empty > _EMPTY_MOST:
                    raise SpecError(
                        f"{base.target.spec.name}: nothing came of {empty} conversations in a row (the user's turn did "
                        "not end, or was said before): take other domains, or give prompts with --data"
                    )
                continue
            empty = 0
            asked.add(prompt)
            samples.append(sample)
            prompts.append(prompt)
            learnt += sample.learnt
            told(Progress(learnt, len(corpus) + len(samples), dropped))
            if sum(len(s.tokens) for s in samples) >= SHARD_TOKENS:
                flush()
        flush()
