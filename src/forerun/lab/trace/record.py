"""One answer watched, and where it is asked for the same answer unwatched beside another arm's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from forerun.core.errors import BrokenInvariant, SpecError
from forerun.core.protocols import Remembers
from forerun.lab.arms import EngineArm
from forerun.lab.bench import PLAIN, Bench
from forerun.lab.sample import Sample, parts_at
from forerun.lab.trace.story import told
from forerun.lab.trace.watch import Notes, WatchedDrafter, WatchedVerifier

_WARM = 4  # tokens answered before, for what is made on first use


@dataclass(frozen=True, slots=True)
class Beside:
    """The same prompt answered twice unwatched, by the traced arm and by another: an impression, no measurement."""

    name: str
    ms_per_token: float | None
    other_ms_per_token: float | None
    parts_at: int | None
    """Character from which the texts differ; None if they are the same."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A traced answer as the page shows it."""

    drafter: str
    verifier: str
    lossless: bool
    sample: Sample
    story: Mapping[str, Any]
    """See `story`."""
    beside: Beside | None = None

    @property
    def text(self) -> str:
        """The answer."""
        return self.sample.texts[0]


def record(
    bench: Bench, drafter: str, prompt: Sequence[int], params: Mapping[str, Any], compare: str | None = None
) -> Recording:
    """Answer `prompt` (token ids) with the drafter of this spec and watch; `compare` is `plain` or another spec.

    `params` are fields of SamplingParams. Raises as an engine does; SpecError where there is no tokenizer.
    """
    if bench.base.words is None:
        raise SpecError(f"{bench.target.spec.name} has no tokenizer: a trace shows texts")
    arm = bench.arm(drafter)
    other = None if compare is None else bench.plain() if compare == PLAIN else bench.arm(compare)
    for ready in (arm, other):
        if ready:
            ready.answer([prompt], {**params, "min_tokens": 0, "max_tokens": _WARM})
    sample, notes = watched(arm, prompt, params)
    story = told(notes.steps, bench.base.words, _stops(params.get("stop")), prompt)
    if "".join(piece for piece, *_ in story["words"]) != sample.texts[0]:
        raise BrokenInvariant("the trace's tokens do not join to the engine's text")
    verify = arm.engine.parts.verify
    beside = _beside(arm, other, prompt, params) if other else None
    return Recording(drafter, verify.name, verify.lossless, sample, story, beside)


def watched(arm: EngineArm, prompt: Sequence[int], params: Mapping[str, Any]) -> tuple[Sample, Notes]:
    """One answer of an arm, with all that can be seen of its steps."""
    notes, parts = Notes(), arm.engine.parts
    if isinstance(parts.drafter, Remembers):
        parts.drafter.forget()  # behind a watch the arm would not see that it can
    arm.engine.parts = replace(
        parts, drafter=WatchedDrafter(parts.drafter, notes), verify=WatchedVerifier(parts.verify, notes)
    )
    try:
        return arm.answer([prompt], params, notes.hear), notes
    finally:
        arm.engine.parts = parts


def _beside(arm: EngineArm, other: EngineArm, prompt: Sequence[int], params: Mapping[str, Any]) -> Beside:
    mine, theirs = arm.answer([prompt], params), other.answer([prompt], params)
    return Beside(other.name, mine.ms_per_token, theirs.ms_per_token, parts_at(mine.texts[0], theirs.texts[0]))


def _stops(stop: object) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, list | tuple) else ()
