"""What `scripts/bench_memory` shows: the memory of whole processes, and how long they take to speak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.lab.views import Chart, Series, Table, View, number

PARTS = {"weights": "weights_mb", "keys and values": "kv_mb", "the rest": "over_mb"}


def view(figures: Mapping[str, Any]) -> list[View]:
    """A table and what the peak is made of."""
    arms = {name: entry for name, entry in figures.items() if isinstance(entry, Mapping)}
    heads = ("MB, 10^6 bytes", "peak", *PARTS, "to first token, s")
    rows = tuple(
        (
            name,
            number(entry["peak_mb"], 0),
            *(number(entry[key], 0) for key in PARTS.values()),
            number(entry["command_to_first_token_s"]),
        )
        for name, entry in arms.items()
    )
    series = tuple(
        Series(part, tuple(arms), tuple(entry[key] for entry in arms.values())) for part, key in PARTS.items()
    )
    title = f"Peak memory of a whole process, {figures['model']}, {figures['context']:,} tokens of context in use"
    return [Table(title, heads, rows), Chart("stack", "Peak memory of a process", "", "MB", series)]
