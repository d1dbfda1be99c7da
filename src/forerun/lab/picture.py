"""The curve as a picture, where matplotlib (extra `lab`) is installed."""

from __future__ import annotations

import io
from importlib import import_module
from statistics import median
from typing import Any

from forerun.lab.curve import Grid, Samples


def svg(title: str, grid: Grid, samples: Samples) -> str | None:
    """Milliseconds over rows with their spread, a line for each batch and context; None without matplotlib."""
    try:
        figure_module: Any = import_module("matplotlib.figure")
    except ImportError:
        return None
    figure = figure_module.Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for context in grid.contexts:
        for batch in grid.batches:
            points = [point for point in grid.points if (point.batch, point.context) == (batch, context)]
            if points:
                _line(axes, f"batch {batch}, context {context}", sorted(points), samples)
    axes.set_xscale("log", base=2)
    ticks = sorted({point.rows for point in grid.points})
    axes.set_xticks(ticks, labels=list(map(str, ticks)))
    axes.set_ylim(bottom=0)
    axes.set(title=title, xlabel="rows of a sequence in one forward", ylabel="milliseconds (median, lowest to highest)")
    axes.grid(alpha=0.3)
    axes.legend()
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _line(axes: Any, label: str, points: list[Any], samples: Samples) -> None:
    values = [[1e3 * seconds for seconds in samples.seconds[point]] for point in points]
    middle = [median(times) for times in values]
    below = [m - min(times) for m, times in zip(middle, values, strict=True)]
    above = [max(times) - m for m, times in zip(middle, values, strict=True)]
    axes.errorbar([point.rows for point in points], middle, yerr=[below, above], marker="o", capsize=3, label=label)
