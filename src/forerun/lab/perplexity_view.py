"""What `scripts/bench_perplexity` shows: the quality that each format costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.lab.views import Chart, Series, Table, View, number


def view(figures: Mapping[str, Any]) -> list[View]:
    """A table, and what each format adds to the perplexity of f32."""
    formats = figures["formats"]
    rows = tuple(
        (name, number(entry["perplexity"], 4), f"{entry['over_f32']:+.2%}", _matrices(entry["matrices"]))
        for name, entry in formats.items()
    )
    title = f"Perplexity of {figures['tokens']:,} tokens in windows of {figures['window']:,} (text {figures['text']})"
    over = Series("over f32", tuple(formats), tuple(100 * entry["over_f32"] for entry in formats.values()))
    return [
        Table(title, ("format", "perplexity", "over f32", "matrices"), rows),
        Chart("bars", "Perplexity over that of f32", "", "percent", (over,), level=0.0),
    ]


def _matrices(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
