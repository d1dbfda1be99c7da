"""Charts as SVG: the same chart, the same bytes; text stays text, and the ink is the colour of the page around it."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from forerun.core.errors import SpecError
from forerun.lab.page.visible import visible
from forerun.lab.views import Chart, Series, X

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a8a8a")
"""Okabe and Ito's, told apart by the colour-blind, on light and on dark paper."""
_MARKS = "osD^vXP"
_INK = "#0a0b0c"  # stands for the page's own colour, which matplotlib cannot name
_DEFAULTS = {
    "svg.hashsalt": "forerun",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: what is laid out with it is the same everywhere
    "font.size": 10,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
}
_ALONE = "<style>svg{color:#222}@media (prefers-color-scheme:dark){svg{color:#ddd}}</style>"
_SMALL, _TALL = 6.4, 3.6  # inches
_MANY = 12  # letters that fit an inch, about


def svg(chart: Chart, name: str = "chart") -> str:
    """An <svg> element for a page; `name` begins its ids, so that several stand in one page. SpecError without
    matplotlib, or for a chart in which nothing was measured."""
    if not any(y is not None for series in chart.series for y in series.ys):
        raise SpecError(f"there is nothing to draw in {chart.title!r}: no figure was measured")
    try:
        pyplot: Any = import_module("matplotlib.figure")
        rc_context: Any = import_module("matplotlib").rc_context
    except ImportError:
        raise SpecError('charts need matplotlib, which is not installed: pip install "forerun[lab]"') from None
    out = io.StringIO()
    with warnings.catch_warnings(), rc_context(_DEFAULTS):
        warnings.simplefilter("ignore")  # glyphs that the fonts here lack: text is drawn by the reader's
        figure = pyplot.Figure(figsize=(_width(chart), _TALL), layout="constrained")
        _draw(figure.subplots(), chart)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return _plain(out.getvalue(), name, chart.title)


def alone(picture: str) -> str:
    """The element as a file of its own, readable on light and on dark paper."""
    head, close, rest = picture.partition(">")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}{close}{_ALONE}{rest}\n'


def places(chart: Chart) -> list[X]:
    """Where anything is on the x axis, in the order of the series."""
    return list(dict.fromkeys(x for series in chart.series for x in series.xs))


def _width(chart: Chart) -> float:
    bars = len(places(chart)) * (len(chart.series) + 1 if chart.kind == "bars" else 2)
    legend = max(len(series.name) for series in chart.series) / _MANY
    return min(14.0, max(_SMALL, bars / 3) + max(0.0, legend - 1))


def _draw(axes: Any, chart: Chart) -> None:
    xs = places(chart)
    named = chart.kind != "lines" or any(isinstance(x, str) for x in xs)
    at = {x: float(i) if named else float(x) for i, x in enumerate(xs)}
    floor = [0.0] * len(xs)
    for i, series in enumerate(chart.series):
        colour = COLOURS[i % len(COLOURS)]
        if chart.kind == "lines":
            _line(axes, series, at, colour, _MARKS[i % len(_MARKS)])
        elif chart.kind == "stack":
            floor = _layer(axes, series, at, colour, floor)
        else:
            _bars(axes, series, at, colour, i, len(chart.series))
    if chart.level is not None:
        axes.axhline(chart.level, color=_INK, linewidth=1, linestyle=(0, (4, 3)), alpha=0.7, zorder=1)
    _axis(axes, chart, xs, at, named)


def _axis(axes: Any, chart: Chart, xs: Sequence[X], at: dict[X, float], named: bool) -> None:
    if named:
        labels = [_name(x) for x in xs]
        crowded = sum(map(len, labels)) > _MANY * _width(chart)
        axes.set_xticks(list(at.values()), labels, rotation=25 if crowded else 0, ha="right" if crowded else "center")
    elif chart.log_x and all(isinstance(x, int | float) and x > 0 for x in xs):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted(at.values()), [f"{x:g}" for x in sorted(at.values())])
        axes.minorticks_off()
    lowest = min(low for series in chart.series for low in (*series.ys, *(series.lows or ())) if low is not None)
    if lowest >= 0:
        axes.set_ylim(bottom=0)
    axes.set(xlabel=visible(chart.x), ylabel=visible(chart.y))
    axes.set_title(visible(chart.title), loc="left", fontsize=11)
    axes.grid(axis="y" if named else "both", color=_INK, alpha=0.15, linewidth=0.6)
    axes.set_axisbelow(True)
    if len(chart.series) > 1 or chart.series[0].name:
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _line(axes: Any, series: Series, at: dict[X, float], colour: str, mark: str) -> None:
    known = sorted(_known(series), key=lambda i: at[series.xs[i]])
    xs, ys = [at[series.xs[i]] for i in known], [series.ys[i] for i in known]
    reach = _whiskers(series, known)
    axes.errorbar(xs, ys, yerr=reach, color=colour, marker=mark, markersize=4.5, capsize=3, label=_name(series.name))


def _bars(axes: Any, series: Series, at: dict[X, float], colour: str, i: int, of: int) -> None:
    known, width = _known(series), 0.8 / of
    xs = [at[series.xs[k]] + (i - (of - 1) / 2) * width for k in known]
    axes.bar(xs, [series.ys[k] for k in known], width * 0.92, color=colour, label=_name(series.name))
    if (reach := _whiskers(series, known)) is not None:
        axes.errorbar(xs, [series.ys[k] for k in known], reach, fmt="none", ecolor=_INK, elinewidth=1, capsize=2.5)


def _known(series: Series) -> list[int]:
    """Places of a series that have a figure."""
    return [i for i, y in enumerate(series.ys) if y is not None]


def _layer(axes: Any, series: Series, at: dict[X, float], colour: str, floor: list[float]) -> list[float]:
    """One part of every bar, on top of `floor`; returns the new floor."""
    heights = dict(zip(series.xs, series.ys, strict=True))
    values = [heights.get(x) or 0.0 for x in at]
    axes.bar(list(at.values()), values, 0.6, bottom=floor, color=colour, label=_name(series.name))
    return [low + value for low, value in zip(floor, values, strict=True)]


def _whiskers(series: Series, known: Sequence[int]) -> list[list[float]] | None:
    """How far whiskers reach below and above at these places; None if there are none at all."""
    if series.lows is None or series.highs is None:
        return None
    below = [_reach(series.lows[i], series.ys[i]) for i in known]
    above = [_reach(series.ys[i], series.highs[i]) for i in known]
    return [below, above] if any(below) or any(above) else None


def _reach(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else max(0.0, high - low)


def _name(x: X) -> str:
    """A label; matplotlib leaves out those that begin with an underscore."""
    text = f"{x:g}" if isinstance(x, float) else visible(str(x))
    return f" {text}" if text.startswith("_") else text


def _plain(written: str, name: str, title: str) -> str:
    """matplotlib's file as an element: no head and metadata, ids of its own, the page's ink."""
    picture = written[written.index("<svg") :]
    picture = re.sub(r"<metadata>.*?</metadata>\s*|<style\b.*?</style>|<!--.*?-->\s*", "", picture, flags=re.S)
    picture = re.sub(r'(<[^<>]*\s)id="', rf'\g<1>id="{name}-', picture)
    picture = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", picture)
    picture = picture.replace(_INK, "currentColor")
    label = re.sub(r'[&<>"]', " ", visible(title))
    style = "stroke-linejoin:round;stroke-linecap:butt"
    return picture.replace("<svg ", f'<svg role="img" aria-label="{label}" style="{style}" ', 1).strip()
