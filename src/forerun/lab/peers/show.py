"""What a contest against other engines shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.lab.views import Chart, Note, Series, Table, View

QUIET = 0.5  # load average of a machine that is ours alone


def view(figures: Mapping[str, Any]) -> list[View]:
    """The ratios, the times behind them, and a chart."""
    return [_ratios(figures), _times(figures), _chart(figures["spread"]), _note(figures)]


def spread(entry: Mapping[str, float], digits: int = 2) -> str:
    """Median, lowest and highest as `1.93 (1.57..2.29)`."""
    return f"{entry['median']:.{digits}f} ({entry['lowest']:.{digits}f}..{entry['highest']:.{digits}f})"


def _ratios(figures: Mapping[str, Any]) -> Table:
    heads = ("comparison", "peer / ours", "same text")
    rows = []
    for name, entry in figures["spread"].items():
        same = figures["same_text"].get(name)
        rows.append((name, spread(entry), "-" if same is None else f"{same:.0%}"))
    title = f"Time of the peer over ours, median (lowest..highest) of {figures['rounds']} rounds"
    return Table(title, heads, tuple(rows))


def _times(figures: Mapping[str, Any]) -> Table:
    rows = tuple((name, spread(entry)) for name, entry in figures["ms"].items())
    return Table("Milliseconds, of a token where decoding", ("who and what", "median (lowest..highest)"), rows)


def _chart(ratios: Mapping[str, Any]) -> Chart:
    ys, lows, highs = (tuple(entry[key] for entry in ratios.values()) for key in ("median", "lowest", "highest"))
    series = Series("peer / ours", tuple(ratios), ys, lows, highs)
    return Chart("bars", "Time of the peer over ours", "", "times", (series,), level=1.0)


def _note(figures: Mapping[str, Any]) -> Note:
    busy = "; the machine was NOT quiet: do not quote these" if figures["load_at_start"] > QUIET else ""
    return Note(
        f"{figures['tokens']} tokens after {figures['context']}; llama.cpp is xllamacpp's wheel, an AVX2 build; the "
        f"load average at the start was {figures['load_at_start']:.1f}{busy}"
    )
