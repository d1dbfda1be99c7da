"""What `scripts/bench_neighbours` shows: what busy neighbours cost, by number of threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.lab.views import Table, View, number

HEADS = ("neighbours", "all threads", "one thread", "as chosen", "of alone")


def view(figures: Mapping[str, Any]) -> list[View]:
    """A table for each format and number of rows."""
    return [
        Table(f"Milliseconds a forward, {weights}, {rows}", HEADS, tuple(map(_row, found.items())))
        for weights, by_rows in figures.items()
        for rows, found in by_rows.items()
    ]


def _row(found: tuple[str, Mapping[str, Any]]) -> tuple[str, ...]:
    name, scene = found
    return (name.split()[0], *(number(ms) for ms in scene["ms"].values()), f"{scene['of_alone']:.2f}x")
