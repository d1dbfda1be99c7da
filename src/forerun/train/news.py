"""What a run tells of itself while it is at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from forerun.train.halting import Halt


@dataclass(frozen=True, slots=True)
class News:
    """How far a phase is: `done` of `total` `unit`, as far as one knows the total, and the seconds that are left."""

    phase: str
    done: float
    total: float | None
    unit: str
    left: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Watch:
    """Who hears of a run, and who may halt it."""

    news: Callable[[News], None] = lambda news: None
    said: Callable[[str], None] = lambda text: None
    halt: Halt = field(default_factory=Halt)


NOBODY = Watch()
