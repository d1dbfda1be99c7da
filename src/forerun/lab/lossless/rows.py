"""The row each token was drawn from, bit for bit beside plain decoding's.

The same text can come from rows that differ, by luck; the same rows cannot give another text. So this looks deeper than
`identity`, with fewer prompts, and it also judges drafters that keep only the distribution: plain decoding is made to
write their text, and the rows of the two are compared token by token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.engine.engine import Engine
from forerun.engine.results import Result
from forerun.lab.bench import AGAIN
from forerun.lab.lossless.asking import Comparison, Question, answer, hinted, judged_by
from forerun.lab.lossless.watching import Following, Seen, Sights, Watching
from forerun.lab.run import Run

LISTED = 20  # differences of an arm that are listed one by one

Params = Sequence[Mapping[str, Any]]
Watched = tuple[list[Result], list[list[Seen]]]
"""Answers, and for each of them the row of every token."""


@dataclass(frozen=True, slots=True)
class RowStudy(Comparison):
    """Whether the rows are the same."""

    def measure(self, run: Run) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The figures, by drafter and way of sampling, and a sample a batch of each."""
        parts: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in (AGAIN, *self.engines)}
        for sampling, unit in self.batches(run, "rows", self._unit):
            for name, figures in unit.items():
                parts[name].setdefault(sampling, []).append(figures)
        found = {
            name: {sampling: _pooled(batches) for sampling, batches in by_sampling.items()}
            for name, by_sampling in parts.items()
        }
        samples = [
            {"part": "rows", "drafter": name, "sampling": sampling, **figures}
            for name, by_sampling in parts.items()
            for sampling, batches in by_sampling.items()
            for figures in batches
        ]
        return {"arms": found}, samples

    def _unit(self, sampling: str, start: int) -> dict[str, dict[str, Any]]:
        """One batch: every arm's rows beside plain decoding's."""
        asked, params = self.batch_from(sampling, start)
        plain = self.bench.plain().engine
        truth = watched(plain, asked, params)
        predicted = hinted(params, truth[0], start)
        found = {}
        for name in (AGAIN, *self.engines):
            ours = watched(self.engines.get(name, plain), asked, predicted)
            texts, said = ([result.token_ids for result in results] for results, _ in (ours, truth))
            theirs = truth if texts == said else followed(self.bench.plain().engine, asked, params, texts)
            found[name] = _compared(asked, theirs, ours)
        return found


def _compared(asked: Sequence[Question], theirs: Watched, ours: Watched) -> dict[str, Any]:
    """Two arms' rows of one batch, token by token."""
    compared, equal, largest = 0, 0, 0.0
    listed: list[dict[str, Any]] = []
    for question, a, b in zip(asked, theirs[1], ours[1], strict=True):
        for at, (one, two) in enumerate(zip(a, b, strict=True)):
            compared += 1
            if one.equals(two):
                equal += 1
                continue
            difference = one.furthest(two)
            largest = max(largest, difference)
            if len(listed) < LISTED:
                listed.append({"prompt": question.name, "position": at, "largest": difference})
    stats = [result.stats for result in ours[0]]
    return {
        "compared": compared,
        "equal": equal,
        "largest": largest,
        "drafted": sum(s.drafted for s in stats),
        "accepted": sum(s.accepted for s in stats),
        "differences": listed,
    }


def _pooled(batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Figures of several batches together; of the differences the first LISTED."""
    return {
        **{name: sum(part[name] for part in batches) for name in ("compared", "equal", "drafted", "accepted")},
        "largest": max(part["largest"] for part in batches),
        "differences": [difference for part in batches for difference in part["differences"]][:LISTED],
    }


def watched(engine: Engine, asked: Sequence[Question], params: Params) -> Watched:
    """Answers of `engine` with their rows."""
    watcher = Watching(engine.parts.verify)
    with judged_by(engine, watcher):
        results = answer(engine, asked, params)
    return results, [rows_of(watcher.seen, q, result) for q, result in zip(asked, results, strict=True)]


def followed(plain: Engine, asked: Sequence[Question], params: Params, texts: Sequence[Sequence[int]]) -> Watched:
    """As `watched` for plain decoding that is made to write `texts`; the engine must be new, as `Following` says."""
    watcher = Following(plain.parts.verify, texts)
    with judged_by(plain, watcher):
        results = answer(plain, asked, params)
    return results, [rows_of(watcher.seen, q, result) for q, result in zip(asked, results, strict=True)]


def rows_of(seen: Sights, question: Question, result: Result) -> list[Seen]:
    """The rows of an answer's tokens in order; what was accepted behind its end is left out."""
    start = len(question.ids)
    return [seen[result.request_id, start + at] for at in range(len(result.tokens))]
