"""The same seed, the same text: every drafter against plain decoding, token for token.

What a drafter says cannot show in the text, so drafts must stand and must fall for the comparison to say anything: all
requests carry a prediction, plain decoding's own answer for every second one and one that starts too late for the
others, and counts of drafted and accepted tokens stand beside each figure. Only the first difference of an answer
counts; what follows it is another text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.core.text import Words
from forerun.engine.results import Result
from forerun.lab.bench import AGAIN
from forerun.lab.lossless.asking import SAMPLINGS, Comparison, Question, answer, hinted, promises_text
from forerun.lab.lossless.margin import margin
from forerun.lab.run import Run
from forerun.lab.sample import parts_at


@dataclass(frozen=True, slots=True)
class Identity(Comparison):
    """Whether the texts are the same."""

    def measure(self, run: Run) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The figures, by drafter and way of sampling, and a sample an answer."""
        samples = []
        for sampling, unit in self.batches(run, "identity", self._unit):
            samples += [
                {"part": "identity", "drafter": name, "sampling": sampling, **record}
                for name, records in unit.items()
                for record in records
            ]
        arms = {
            name: {sampling: _figures(_of(samples, name, sampling)) for sampling in self._samplings(name)}
            for name in (AGAIN, *self.engines)
        }
        excluded = {name: left for name in self.engines if (left := self._left(name))}
        together = {sampling: _together(arms, sampling) for sampling in self.samplings}
        return {"arms": arms, "together": together, "excluded": excluded}, samples

    def _samplings(self, name: str) -> list[str]:
        if name == AGAIN:
            return list(self.samplings)
        engine = self.engines[name]
        return [s for s in self.samplings if promises_text(engine, greedy=not SAMPLINGS[s])]

    def _left(self, name: str) -> list[str]:
        """Ways of sampling in which the drafter keeps the distribution and not the text."""
        return [sampling for sampling in self.samplings if sampling not in self._samplings(name)]

    def _unit(self, sampling: str, start: int) -> dict[str, list[dict[str, Any]]]:
        """One batch: a record for every answer of every arm that promises the text."""
        asked, params = self.batch_from(sampling, start)
        plain = self.bench.plain().engine
        truth = answer(plain, asked, params)
        predicted = hinted(params, truth, start)
        found = {}
        for name in (AGAIN, *self.engines):
            if sampling in self._samplings(name):
                results = answer(self.engines.get(name, plain), asked, predicted)
                found[name] = [
                    self._record(q, p, a, b) for q, p, a, b in zip(asked, params, truth, results, strict=True)
                ]
        return found

    def _record(self, asked: Question, params: Mapping[str, Any], plain: Result, ours: Result) -> dict[str, Any]:
        record: dict[str, Any] = {
            "prompt": asked.name,
            "tokens": len(ours.tokens),
            "drafted": ours.stats.drafted,
            "accepted": ours.stats.accepted,
            "same": ours.token_ids == plain.token_ids,
        }
        if not record["same"]:
            record["difference"] = self._difference(asked, params, plain.token_ids, ours.token_ids)
        return record

    def _difference(
        self, asked: Question, params: Mapping[str, Any], plain: Sequence[int], ours: Sequence[int]
    ) -> dict[str, Any]:
        """Where two answers part, both tokens there, and how close they were in the target's row."""
        at = parts_at(plain, ours)
        assert at is not None
        found: dict[str, Any] = {"position": at, "near_tie": False}
        for name, ids in (("plain", plain), ("drafted", ours)):
            found[name] = token(self.bench.base.words, ids[at]) if at < len(ids) else None
        if at < min(len(plain), len(ours)):
            found |= margin(self.bench.target, [*asked.ids, *plain[:at]], plain[at], ours[at], params)
        return found


def token(words: Words | None, id: int) -> dict[str, Any]:
    """A token for people."""
    return {"id": id, "text": words.decode([id]) if words else ""}


def _of(samples: Sequence[Mapping[str, Any]], drafter: str, sampling: str) -> list[Mapping[str, Any]]:
    return [s for s in samples if s["drafter"] == drafter and s["sampling"] == sampling]


def _together(arms: Mapping[str, Mapping[str, Any]], sampling: str) -> dict[str, int]:
    """Counts of all drafters in one way of sampling."""
    entries = [arm[sampling] for name, arm in arms.items() if name != AGAIN and sampling in arm]
    counts = ("same", "of", "tokens", "drafted", "accepted")
    return {"drafters": len(entries), **{count: sum(entry[count] for entry in entries) for count in counts}}


def _figures(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "same": sum(s["same"] for s in samples),
        "of": len(samples),
        **{count: sum(s[count] for s in samples) for count in ("tokens", "drafted", "accepted")},
        "divergences": [{"prompt": s["prompt"], **s["difference"]} for s in samples if not s["same"]],
    }
