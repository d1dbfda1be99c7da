"""Questions as token ids, and engines answering a batch of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from forerun.core.errors import SpecError
from forerun.core.protocols import Remembers, Verifier
from forerun.engine.engine import Engine
from forerun.engine.results import Result
from forerun.lab.bench import Bench
from forerun.lab.paired import opening
from forerun.lab.run import Run
from forerun.workloads.workload import Workload

SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 0.8, "top_p": 0.95},
    "pure": {"temperature": 1.2},
}
"""How everything is asked: without chance, as people do, and with all of the vocabulary in play."""
SPOILT = 3  # an odd prediction lacks the first third of the answer


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt's first turn as the model reads it."""

    workload: str
    prompt: str
    ids: tuple[int, ...]

    @property
    def name(self) -> str:
        """For people: workload/prompt."""
        return f"{self.workload}/{self.prompt}"


def questions(bench: Bench, workloads: Sequence[Workload], tokens: int) -> tuple[list[Question], list[str]]:
    """Every prompt beside whose first turn an answer of so many tokens fits, and the names of the rest; SpecError if
    none fits."""
    room = bench.target.spec.max_len - tokens
    found, left_out = [], []
    for work in workloads:
        for prompt in work.prompts:
            question = Question(work.name, prompt.id, tuple(bench.tokens(opening(prompt))))
            if len(question.ids) <= room:
                found.append(question)
            else:
                left_out.append(question.name)
    if not found:
        raise SpecError(
            f"no prompt fits: beside the answer the context has room for {room} tokens; ask for shorter ones"
        )
    return found, left_out


def spread(asked: Sequence[Question], count: int) -> list[Question]:
    """At most `count` of them, evenly from all."""
    count = min(count, len(asked))
    return [asked[i * len(asked) // count] for i in range(count)]


def answer(engine: Engine, asked: Sequence[Question], params: Sequence[Mapping[str, Any]]) -> list[Result]:
    """Answer all at once, as many as the engine runs, each with its own fields of SamplingParams; results in order."""
    drafter = engine.parts.drafter
    if isinstance(drafter, Remembers):
        drafter.forget()
    try:
        requests = [engine.add(list(q.ids), **{"n": 1, **p}) for q, p in zip(asked, params, strict=True)]
        while not all(map(engine.finished, requests)):
            engine.step()
        return [engine.collect(request) for request in requests]
    finally:
        engine.close()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Each drafter's engine by its spec beside plain decoding, on these questions, `batch` of them at once."""

    bench: Bench
    engines: Mapping[str, Engine]
    asked: Sequence[Question]
    samplings: Sequence[str]
    batch: int
    tokens: int
    seed: int

    def batches(self, run: Run, part: str, unit: Callable[[str, int], Any]) -> Iterator[tuple[str, Any]]:
        """Every way of sampling, and what `unit` makes of it for each batch by its first question's number."""
        starts = range(0, len(self.asked), self.batch)
        for sampling, start in run.track([(s, i) for s in self.samplings for i in starts], part):
            yield sampling, run.unit(f"{part}/{sampling}/{start}", partial(unit, sampling, start))

    def batch_from(self, sampling: str, start: int) -> tuple[Sequence[Question], list[dict[str, Any]]]:
        """The questions from number `start` on, and how each is asked: with a seed of its own."""
        asked = self.asked[start : start + self.batch]
        params = [{"max_tokens": self.tokens, "seed": self.seed + start + i} for i in range(len(asked))]
        return asked, [{**ask, **SAMPLINGS[sampling]} for ask in params]


def hinted(params: Sequence[dict[str, Any]], truth: Sequence[Result], start: int) -> list[dict[str, Any]]:
    """The same, with plain decoding's answers as predictions: see `prediction`."""
    hints = [prediction(result.token_ids, start + i) for i, result in enumerate(truth)]
    return [{**ask, "prediction": hint} for ask, hint in zip(params, hints, strict=True)]


def prediction(answer: Sequence[int], index: int) -> tuple[int, ...]:
    """The answer, for odd questions without its beginning: some drafts stand and others fall."""
    return tuple(answer) if index % 2 == 0 else tuple(answer[len(answer) // SPOILT :])


@contextmanager
def judged_by(engine: Engine, verify: Verifier) -> Iterator[Engine]:
    """The engine with another verifier, for a while."""
    parts = engine.parts
    engine.parts = replace(parts, verify=verify)
    try:
        yield engine
    finally:
        engine.parts = parts


def promises_text(engine: Engine, *, greedy: bool) -> bool:
    """Whether the same seed must give plain decoding's text: for drawn drafts, and under rules that reject, only the
    distribution is promised."""
    parts = engine.parts
    if greedy:
        return parts.verify.lossless
    return parts.verify.name in ("auto", "match") and parts.drafter.laws <= {"chosen", "foreseen"}
