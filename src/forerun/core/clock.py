"""A stopwatch for the phases of a step; the one that is off costs nothing.

Phases nest never and follow each other, so a step's time is the sum of its phases and what lies between them.
On CUDA the clock waits for the device at each border: times are true and the run is a little slower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Protocol


class Clock(Protocol):
    """Times phases by name between two laps."""

    def __call__(self, phase: str) -> AbstractContextManager[None]: ...

    def lap(self) -> Mapping[str, float]:
        """Seconds by phase since the last lap, and forget them."""
        ...


class NoClock:
    """Off."""

    def __call__(self, phase: str) -> AbstractContextManager[None]:
        return nullcontext()

    def lap(self) -> Mapping[str, float]:
        return {}


class PhaseClock:
    """On. `sync` is called at each border of a phase (torch.cuda.synchronize where work runs ahead)."""

    def __init__(self, sync: Callable[[], None] | None = None) -> None:
        self._sync = sync
        self._seconds: dict[str, float] = {}

    def __call__(self, phase: str) -> _Phase:
        return _Phase(self._seconds, phase, self._sync)

    def lap(self) -> Mapping[str, float]:
        seconds, self._seconds = self._seconds, {}
        return seconds


class _Phase:
    """One phase's time, added to `seconds` when it is left; a plain class, at half the cost of a generator."""

    __slots__ = ("_phase", "_seconds", "_start", "_sync")

    def __init__(self, seconds: dict[str, float], phase: str, sync: Callable[[], None] | None) -> None:
        self._seconds = seconds
        self._phase = phase
        self._sync = sync

    def __enter__(self) -> None:
        if self._sync is not None:
            self._sync()
        self._start = perf_counter()

    def __exit__(self, *error: object) -> None:
        if self._sync is not None:
            self._sync()
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + perf_counter() - self._start


NO_CLOCK = NoClock()
