"""A stopwatch for the phases of a step; the one that is off costs nothing.

Phases nest never and follow each other, so a step's time is the sum of its phases and what lies between them.
On CUDA the clock waits for the device at each border: times are true and the run is a little slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
        self._sync = sync or (lambda: None)
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        self._sync()
        start = perf_counter()
        try:
            yield
        finally:
            self._sync()
            self._seconds[phase] = self._seconds.get(phase, 0.0) + perf_counter() - start

    def lap(self) -> Mapping[str, float]:
        seconds, self._seconds = self._seconds, {}
        return seconds


NO_CLOCK = NoClock()
