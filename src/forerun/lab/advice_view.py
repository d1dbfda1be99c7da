"""What `scripts/bench_advice` shows: what `lab advise` said, beside what a full grid found, and what each took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.lab import columns
from forerun.lab.views import Chart, Note, Series, View

COLUMNS = (
    columns.word("advised", "advised"),
    columns.ratio("in all", "advised_total"),
    columns.word("best of the grid", "best"),
    columns.ratio("told", "best_told_total"),
    columns.ratio("advised there", "advised_told_total"),
    columns.Column("lost", lambda f: "-" if f["loss"] is None else f"{f['loss']:+.1%}"),
)


def view(figures: Mapping[str, Any]) -> list[View]:
    """A table and a chart of all workloads, and the seconds."""
    works = figures["workloads"]
    title = "Total speed-up over plain decoding: what was advised, and the best of the grid"
    spent = figures["seconds"]
    names = tuple(works)
    bars = tuple(
        Series(said, names, tuple((f[key] or {}).get("value") for f in works.values()))
        for said, key in (("advised", "advised_told_total"), ("best of the grid", "best_told_total"))
    )
    return [
        columns.table(title, ("workload",), [((name,), f) for name, f in works.items()], COLUMNS),
        Chart("bars", "Advised, and the best of the grid", "", "times", bars, level=1.0),
        Note(
            "the best is chosen on every second prompt, and both are told on the others; "
            "below 0 % nothing was lost: there the advised one is faster"
        ),
        Note(
            f"{spent['advise']:,.0f} s for the advice, {spent['grid']:,.0f} s for the grid of {figures['candidates']} "
            f"candidates on {figures['prompts']} prompts of each workload: {spent['ratio']:.1f} times as long"
        ),
    ]
