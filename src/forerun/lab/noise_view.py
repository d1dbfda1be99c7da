"""What `scripts/bench_noise` shows: how far plain decoding was from itself, run by run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.lab.views import Chart, Note, Series, Table, View, interval


def view(figures: Mapping[str, Any]) -> list[View]:
    """A table and a chart of all runs."""
    runs = figures["runs"]
    rows = tuple((str(i), interval(run, 3), "yes" if run["calm"] else "no") for i, run in enumerate(runs, 1))
    names = tuple(str(i) for i in range(1, len(runs) + 1))
    ys, lows, highs = (tuple(run[key] for run in runs) for key in ("value", "low", "high"))
    return [
        Note(f"{figures['inside']} of {figures['of']} runs within 0.97 to 1.03"),
        Table("Plain decoding over plain decoding", ("run", "ratio", "within 3 %"), rows),
        Chart(
            "bars", "Plain decoding over itself", "run", "times", (Series("A/A", names, ys, lows, highs),), level=1.0
        ),
    ]
