"""Questions as token ids, and engines answering a batch of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from forerun.core.errors import SpecError
from forerun.core.protocols import Remembers, Verifier
from forerun.engine.engine import Engine
from forerun.engine.results import Result
from forerun.lab.bench import Bench
from forerun.lab.paired import opening
from forerun.workloads.workload import Workload

SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 0.8, "top_p": 0.95},
    "pure": {"temperature": 1.2},
}
"""How everything is asked: without chance, as people do, and with all of the vocabulary in play."""


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
