"""Where a step's time goes, finer than the engine's own phases: thin wrappers around an engine's parts, for one answer.

The verdict holds the draws (a row's processing and the choice of a token), the commit and what follows it hold the
text's decoding. Both are told apart here by wrapping the verifier and the words. That costs two clock readings a call,
so such an arm runs beside the same engine without them, and the ratio of the two is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, TypeVar, cast

from torch import Tensor

from forerun.core.draft import Draft, Verdict
from forerun.core.noise import Noise, Slot
from forerun.core.plan import Load, Plan
from forerun.core.protocols import Controller, StepTrace, Verifier
from forerun.core.rows import Rows
from forerun.core.text import Listener as Ear
from forerun.core.text import Words
from forerun.lab.arms import EngineArm, Listener, Prompts
from forerun.lab.sample import Sample

PHASES = ("draft", "score", "verify", "sampling", "commit", "detokenise", "rest")

T = TypeVar("T")


@dataclass(slots=True)
class Tally:
    """Seconds by name; a call within a timed call belongs to the outer one."""

    seconds: dict[str, float] = field(default_factory=lambda: {"draw": 0.0, "hear": 0.0, "tell": 0.0})
    _busy: bool = False

    def time(self, name: str, call: Callable[..., T], *args: Any) -> T:
        """What `call(*args)` returns, its time added to `name`."""
        if self._busy:
            return call(*args)
        self._busy = True
        start = perf_counter()
        try:
            return call(*args)
        finally:
            self.seconds[name] += perf_counter() - start
            self._busy = False


class _Rows(Rows):
    """The rows of a step as a verifier asks them; only what verifiers call is timed."""

    def __init__(self, rows: Rows, tally: Tally) -> None:
        self.__dict__.update(rows.__dict__)
        self._ask = rows
        self._tally = tally

    def pick(self, b: int, node: int, noise: Noise) -> int:
        return self._tally.time("draw", self._ask.pick, b, node, noise)

    def probs(self, b: int, node: int) -> Tensor:
        return self._tally.time("draw", self._ask.probs, b, node)


@dataclass(frozen=True, slots=True)
class _Noise:
    """A noise whose draws are timed."""

    noise: Noise
    tally: Tally

    def accept(self, b: int, slot: Slot, chance: float) -> bool:
        return self.noise.accept(b, slot, chance)

    def pick(self, b: int, slot: Slot, weights: Tensor, ids: Tensor | None = None) -> int:
        return self.tally.time("draw", self.noise.pick, b, slot, weights, ids)

    def foresee(self, b: int, position: int, weights: Tensor, ids: Tensor | None = None) -> Tensor:
        return self.noise.foresee(b, position, weights, ids)


class _Verifier:
    """A verifier that asks through timed rows and timed noise."""

    def __init__(self, verify: Verifier, tally: Tally) -> None:
        self.name, self.laws, self.lossless = verify.name, verify.laws, verify.lossless
        self.chains_only, self.greedy_only = verify.chains_only, verify.greedy_only
        self._verify, self._tally = verify, tally

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        return self._verify(draft, _Rows(rows, self._tally), _Noise(noise, self._tally))


@dataclass(frozen=True, slots=True)
class _Ear:
    """An answer's decoder: `hear` is called within the commit, the rest after the step."""

    ear: Ear
    tally: Tally

    def hear(self, token: int) -> bool:
        return self.tally.time("hear", self.ear.hear, token)

    def take(self) -> str:
        return self.tally.time("tell", self.ear.take)

    def finish(self) -> str:
        return self.tally.time("tell", self.ear.finish)


class _Words:
    """Words whose decoders are timed; all else is theirs."""

    def __init__(self, words: Words, tally: Tally) -> None:
        self._words, self._tally = words, tally

    def __getattr__(self, name: str) -> Any:
        return getattr(self._words, name)

    def listen(self, stops: tuple[str, ...], prompt: Sequence[int] = ()) -> Ear:
        return _Ear(self._words.listen(stops, prompt), self._tally)


@dataclass(slots=True)
class _Log:
    """A controller that does as `inner` says and notes of each step its rows, its forward's seconds and the tally."""

    inner: Controller
    tally: Tally
    steps: list[tuple[int, float, dict[str, float]]] = field(default_factory=list)

    def plan(self, load: Load) -> Plan:
        """The inner controller's."""
        return self.inner.plan(load)

    def observe(self, step: StepTrace) -> None:
        """Note the step and pass it on."""
        self.inner.observe(step)
        self.steps.append((sum(step.sizes), step.seconds.get("score", 0.0), dict(self.tally.seconds)))

    def by_rows(self, last: int) -> tuple[tuple[int, int, float], ...]:
        """(rows, steps, seconds) of the last so many steps."""
        found: dict[int, list[float]] = {}
        for rows, seconds, _ in self.steps[len(self.steps) - last :]:
            found.setdefault(rows, []).append(seconds)
        return tuple((rows, len(times), sum(times)) for rows, times in sorted(found.items()))

    def fine(self, last: int) -> dict[str, float]:
        """Seconds of the tally over the last so many steps.

        A step is noted before its text is told, so the telling of the step before the first has just been counted
        there, and the last step's comes after its note.
        """
        if not last:
            return dict.fromkeys(self.tally.seconds, 0.0)
        nothing = dict.fromkeys(self.tally.seconds, 0.0)
        before = self.steps[-last - 1][2] if last < len(self.steps) else nothing
        first, end = self.steps[-last][2], self.tally.seconds
        return {name: end[name] - (first if name == "tell" else before)[name] for name in end}


@dataclass(slots=True)
class PhasedArm:
    """An engine arm whose samples tell forwards apart by rows and, if `fine`, draws and text from their phases."""

    name: str
    arm: EngineArm
    fine: bool = False

    def answer(self, prompts: Prompts, params: Mapping[str, Any], listener: Listener | None = None) -> Sample:
        """See `Arm`; the engine is as it was afterwards."""
        engine, tally = self.arm.engine, Tally()
        before = engine.controller, engine.parts, engine.words
        log = _Log(engine.controller, tally)
        engine.controller = log
        if self.fine:
            engine.parts = replace(engine.parts, verify=_Verifier(engine.parts.verify, tally))
            engine.words = cast(Words, _Words(engine.words, tally)) if engine.words else None
        try:
            sample = self.arm.answer(prompts, params, listener)
        finally:
            engine.controller, engine.parts, engine.words = before
        phases = told_apart(sample.phases, log.fine(sample.steps)) if self.fine else sample.phases
        return replace(sample, phases=phases, by_rows=log.by_rows(sample.steps))


def told_apart(phases: Mapping[str, float], fine: Mapping[str, float]) -> dict[str, float]:
    """`phases` with the draws taken out of the verdict, and the text out of the commit and the rest."""
    found = {name: phases.get(name, 0.0) for name in PHASES}
    found["verify"] -= fine["draw"]
    found["sampling"] = fine["draw"]
    found["commit"] -= fine["hear"]
    found["rest"] -= fine["tell"]
    found["detokenise"] = fine["hear"] + fine["tell"]
    return found


def summed(samples: Sequence[Sample]) -> dict[str, float]:
    """Seconds by phase over samples."""
    names = dict.fromkeys(name for sample in samples for name in sample.phases)
    return {name: sum(sample.phases.get(name, 0.0) for sample in samples) for name in names}
