"""What a forward costs: seconds by rows, batch and context, as measured on one machine with one model.

`forerun lab curve` makes one. Only measured points are held: between them nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from forerun.core.errors import LoadError, SpecError

_LARGEST = 1 << 25  # rows, sequences or tokens; nothing real comes near


class Point(NamedTuple):
    """One kind of forward."""

    rows: int
    """Rows of each sequence, the root included: 1 is plain decoding."""
    batch: int
    """Sequences that are fed at once."""
    context: int
    """Tokens of each sequence before the forward, the root included."""


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds of one forward by point."""

    seconds: Mapping[Point, float]

    def __post_init__(self) -> None:
        for point, seconds in self.seconds.items():
            for name, value in zip(Point._fields, point, strict=True):
                if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST:
                    raise SpecError(f"{name} of a cost curve are whole numbers from 1 to {_LARGEST}, got {value!r}")
            if isinstance(seconds, bool) or not isinstance(seconds, int | float):
                raise SpecError(f"seconds at {tuple(point)} must be a number, got {seconds!r}")
            if not (math.isfinite(seconds) and seconds > 0):
                raise SpecError(f"seconds at {tuple(point)} must be above 0 and finite, got {seconds!r}")
        ordered = {Point(*point): float(self.seconds[point]) for point in sorted(self.seconds)}
        object.__setattr__(self, "seconds", MappingProxyType(ordered))

    def at(self, rows: int, batch: int = 1, context: int = 1) -> float:
        """Seconds of a measured point; SpecError naming those that were measured for one that was not."""
        point = Point(rows, batch, context)
        if point not in self.seconds:
            near = sorted(self.seconds, key=lambda other: sum(abs(a - b) for a, b in zip(other, point, strict=True)))
            shown = ", ".join(str(tuple(other)) for other in near[:4]) or "none"
            raise SpecError(
                f"no forward of (rows, batch, context) = {tuple(point)} was measured (nearest: {shown}): "
                "measure it with `forerun lab curve`"
            )
        return self.seconds[point]

    def by_rows(self, batch: int, context: int) -> dict[int, float]:
        """Seconds by rows at one batch and context, ascending."""
        return {p.rows: seconds for p, seconds in self.seconds.items() if (p.batch, p.context) == (batch, context)}

    def to_json(self) -> dict[str, object]:
        """As JSON values; floats come back bit for bit."""
        return {"points": [{**point._asdict(), "seconds": seconds} for point, seconds in self.seconds.items()]}

    @classmethod
    def from_json(cls, value: object) -> CostCurve:
        """What `to_json` gave, read back; LoadError for anything else."""
        points = value.get("points") if isinstance(value, dict) else None
        if not isinstance(points, list):
            raise LoadError(
                "a cost curve is a JSON object with a list `points`; measure again with `forerun lab curve`"
            )
        seconds: dict[Point, Any] = {}
        for entry in points:
            if not isinstance(entry, dict) or set(entry) != {*Point._fields, "seconds"}:
                raise LoadError(f"a point of a cost curve has rows, batch, context and seconds, got {str(entry)[:80]}")
            if not all(type(entry[name]) is int for name in Point._fields):
                raise LoadError(f"rows, batch and context of a cost curve are whole numbers, got {str(entry)[:80]}")
            point = Point(*(entry[name] for name in Point._fields))
            if point in seconds:
                raise LoadError(f"the cost curve has {tuple(point)} twice")
            seconds[point] = entry["seconds"]
        try:
            return cls(seconds)
        except SpecError as error:
            raise LoadError(f"the cost curve is damaged: {error}") from None
