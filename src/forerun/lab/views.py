"""What an experiment shows, said once: the terminal, the report and the notebook each draw it in their own way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["bars", "lines", "stack"]
X = str | float


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence that stands for itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are text already; the first column is left-aligned, the others to the right."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one colour of bars: values over places, with whiskers where they are known."""

    name: str
    xs: tuple[X, ...]
    ys: tuple[float | None, ...]
    lows: tuple[float | None, ...] | None = None
    highs: tuple[float | None, ...] | None = None


def measured(name: str, xs: Sequence[X], found: Sequence[Mapping[str, Any] | None]) -> Series:
    """Values with their intervals, as figures have them; a gap where there is none."""
    ys, lows, highs = (tuple((each or {}).get(key) for each in found) for key in ("value", "low", "high"))
    return Series(name, tuple(xs), ys, lows, highs)


@dataclass(frozen=True, slots=True)
class Chart:
    """Series over one axis; `level` is a line to compare with, as 1 for a speed-up; `log_x` doubles at each tick."""

    kind: Kind
    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    level: float | None = None
    log_x: bool = False


View = Note | Table | Chart


def text(table: Table) -> str:
    """A table for the terminal."""
    rows = [table.heads, *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.heads))]

    def line(row: tuple[str, ...]) -> str:
        cells = zip(row, widths, strict=True)
        return "  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(cells))

    lines = map(line, rows)
    return "\n".join([table.title, *(line.rstrip() for line in lines)])


def spoken(views: Sequence[View]) -> str:
    """Tables and notes for the terminal; charts are left to those who can draw."""
    parts = [view.text if isinstance(view, Note) else text(view) for view in views if not isinstance(view, Chart)]
    return "\n\n".join(parts)


def interval(value: Mapping[str, Any] | None, digits: int = 2) -> str:
    """An interval's JSON as `2.37 (2.10..2.61)`; a dash where there is none."""
    if value is None:
        return "-"
    if value["low"] is None:
        return f"{value['value']:.{digits}f}"
    return f"{value['value']:.{digits}f} ({value['low']:.{digits}f}..{value['high']:.{digits}f})"


def number(value: float | None, digits: int = 2) -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"
