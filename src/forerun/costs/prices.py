"""What rows and levels cost, in forwards of one row: the unit in which a guess that stands saves one.

A forward's measured seconds are noisy and not even monotone, so prices are of the largest convex curve below them: each
further row costs at least as much as the one before. A guess is worth its row if it is at least as likely as the row is
dear.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from forerun.core.errors import LoadError, SpecError

BITS = {
    "f32": 32, "float32": 32, "bf16": 16, "bfloat16": 16, "float16": 16, "int8": 8, "q8_0": 8, "q4_0": 4, "q4_1": 4,
    "nf4": 4,
}  # fmt: skip
"""Of a weight, by format."""
ISAS = ("portable", "avx2", "avx512", "avx512_bf16", "amx_emulated", "amx")
"""Instruction sets from the plainest up: where one was not measured the nearest stands for it."""
TILE = 16
"""Rows of a tile, over which a mean price is taken."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Forwards of one row that a forward costs, by rows; `forwards[1]` is 1."""

    forwards: Mapping[int, float]
    _rows: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _slopes: tuple[float, ...] = field(init=False, repr=False, compare=False)
    """What each row costs from the rows beside it on; asked for every guess, so made once."""

    def __post_init__(self) -> None:
        for rows, cost in self.forwards.items():
            if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
                raise SpecError(f"rows of a price are whole numbers from 1 up, got {rows!r}")
            if isinstance(cost, bool) or not isinstance(cost, int | float) or not (math.isfinite(cost) and cost > 0):
                raise SpecError(f"the price of {rows} rows must be above 0 and finite, got {cost!r}")
        if 1 not in self.forwards:
            raise SpecError("prices need the forward of 1 row, in which all others are told")
        curve = _convex(self.forwards)
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(curve.items())]
        object.__setattr__(self, "forwards", MappingProxyType(curve))
        object.__setattr__(self, "_rows", tuple(curve))
        object.__setattr__(self, "_slopes", (*slopes, slopes[-1] if slopes else 0.0))

    def forward(self, rows: float) -> float:
        """Of so many rows; beyond those measured as the last ones."""
        at = max(0, bisect_right(self._rows, rows) - 1)
        return self.forwards[self._rows[at]] + (rows - self._rows[at]) * self._slopes[at]

    def row(self, rows: int) -> float:
        """What the last of so many rows adds."""
        return self._slopes[max(0, bisect_left(self._rows, rows) - 1)]

    @property
    def mean_row(self) -> float:
        """What a row of a tile adds."""
        return (self.forward(TILE) - 1) / (TILE - 1)

    @property
    def full(self) -> int:
        """Rows whose arithmetic alone takes as long as a forward of one row: more of them share nothing any more.

        No less than 1, and 0 where more rows were never seen to cost more.
        """
        last = self._slopes[-1]
        return max(1, round(1 / last)) if last > 0 else 0


@dataclass(frozen=True, slots=True)
class Worth:
    """How likely a guess must be for what it costs."""

    prices: Prices
    level: float = 0.0
    """What a level of the tree costs, in forwards of one row of the target."""
    least: float | None = None
    """A price that was said for every row, in the place of the measured ones."""

    def row(self, rows: int) -> float:
        """Of the guess that makes a forward so many rows long."""
        return self.prices.row(rows) if self.least is None else self.least


def default(isa: str, format: str) -> Prices:
    """Prices measured for an instruction set of the native runtime and a format of weights, or the nearest to them."""
    known = _defaults()
    wanted = ISAS.index(isa) if isa in ISAS else 0
    by_isa = known[min(known, key=lambda name: (abs(ISAS.index(name) - wanted), name))]
    bits = BITS.get(format, 16)
    return by_isa[min(by_isa, key=lambda name: (abs(BITS[name] - bits), name))]


@cache
def _defaults() -> dict[str, dict[str, Prices]]:
    text = (resources.files("forerun.costs") / "defaults.json").read_text(encoding="utf-8")
    return {isa: {format: _of(rows) for format, rows in formats.items()} for isa, formats in json.loads(text).items()}


def said(costs: str) -> Prices | None:
    """Those that the option `costs` asks for: of a file, `free`, or None where it is empty."""
    return FREE if costs == "free" else read(costs) if costs else None


def read(path: str | Path) -> Prices:
    """Prices from a file that `forerun lab curve --out` wrote, at its first batch and context; LoadError if it is no
    such file."""
    how = "write them with forerun lab curve -m MODEL --out FILE"
    try:
        return of_milliseconds(json.loads(Path(path).read_bytes())["figures"]["ms_by_rows"])
    except OSError as error:
        raise LoadError(f"costs cannot be read from {path} ({error.strerror}): {how}") from None
    except (ValueError, KeyError, TypeError, AttributeError, SpecError):  # no JSON, or JSON of another thing
        raise LoadError(f"{path} holds no costs of forwards: {how}") from None


def of_milliseconds(by_rows: Mapping[str, float]) -> Prices:
    """Prices of forwards whose milliseconds are given by rows, as results have them; SpecError without 1 row."""
    if "1" not in by_rows:
        raise SpecError("the time of 1 row is missing")
    return Prices({int(rows): ms / by_rows["1"] for rows, ms in by_rows.items()})


def _of(rows: Mapping[str, Any]) -> Prices:
    return Prices({int(n): cost for n, cost in rows.items()})


def _convex(forwards: Mapping[int, float]) -> dict[int, float]:
    """The largest convex, never falling curve below, by the points it goes through."""
    found: list[tuple[int, float]] = []
    least = math.inf
    for rows in sorted(forwards, reverse=True):  # never falling: what more rows take less for, fewer do too
        least = min(least, forwards[rows])
        found.append((rows, least if rows > 1 else min(1.0, least)))
    hull: list[tuple[int, float]] = []
    for point in reversed(found):
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return {rows: cost / hull[0][1] for rows, cost in hull}


def _turns_up(a: tuple[int, float], b: tuple[int, float], c: tuple[int, float]) -> bool:
    """Whether b lies on or above the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


FREE = Prices({1: 1.0})
"""Rows that cost nothing: of what nobody measured."""
FREE_WORTH = Worth(FREE)
"""Every guess is worth it."""
