"""What `scripts/bench_rows` shows: what a few rows cost on the torch runtime, and its products alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.lab.views import Chart, Note, Series, Table, View, number

ARMS = {"whole forward": "forward_ms", "products, packed": "packed_ms", "products, F.linear": "F.linear_ms"}


def view(figures: Mapping[str, Any]) -> list[View]:
    """For each dtype a table, a chart of times over one row's, and whether rows keep their bits."""
    views: list[View] = []
    for dtype, entry in figures.items():
        if isinstance(entry, Mapping):
            views += [_table(dtype, entry), _chart(dtype, entry), _bits(dtype, entry["packed_rows_same_bits"])]
    return views


def _table(dtype: str, entry: Mapping[str, Any]) -> Table:
    heads = (dtype, *(f"{rows} rows" if rows != "1" else "1 row" for rows in entry["forward_ms"]))
    rows = tuple((name, *(number(ms) for ms in entry[key].values())) for name, key in ARMS.items())
    return Table(f"Milliseconds by rows, {dtype}", heads, rows)


def _chart(dtype: str, entry: Mapping[str, Any]) -> Chart:
    series = []
    for name, key in ARMS.items():
        times = entry[key]
        xs = tuple(float(rows) for rows in times)
        series.append(Series(name, xs, tuple(ms / times["1"] for ms in times.values())))
    return Chart("lines", f"Time over that of one row, {dtype}", "rows", "times", tuple(series), level=1.0, log_x=True)


def _bits(dtype: str, same: bool) -> Note:
    return Note(f"{dtype}: rows of the packed products {'have' if same else 'do NOT have'} the same bits at any number")
