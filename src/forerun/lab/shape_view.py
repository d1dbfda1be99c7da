"""What `lab shape` shows: a table a drafter and workload, tau and speed-up over depth, and the best shape in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from forerun.lab import columns
from forerun.lab.domains import noise_note
from forerun.lab.looping import with_gains
from forerun.lab.views import Chart, Note, Series, Table, View, interval, number

SWEEPS = (("depth", "depth"), ("width", "width"), ("nodes", "node budget"))


def view(figures: Mapping[str, Any]) -> list[View]:
    """Tables, charts and sentences of a run."""
    views: list[View] = [noise_note(figures["noise"]), Note(_probed(figures["probe"]))]
    for workload, found in figures["workloads"].items():
        for drafter, each in found["drafters"].items():
            views += _table(f"{workload}, {drafter}", each)
            if each["pairs"]:
                views.append(_pairs(f"{workload}, {drafter}", each["pairs"]))
            views += [Note(f"{workload}, {drafter}: {text}") for text in _sentences(each)]
        views.append(_chart(workload, found["drafters"]))
    if figures["left_out"]:
        views.append(Note(f"left out, too long for the context: {', '.join(figures['left_out'])}"))
    return views


def _probed(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "EAGLE's probe for a node count was left out: the context is too short for it"
    times = ", ".join(f"{ms:.2f} ms for {rows}" for rows, ms in found["ms_by_rows"].items())
    return f"EAGLE's probe takes {found['nodes']} nodes ({times} rows)"


def _table(title: str, found: Mapping[str, Any]) -> list[View]:
    points = [("default", found["default"])]
    points += [(said, point) for key, said in SWEEPS for point in found[key]]
    points += [("probed nodes", found["auto_nodes"])] if found["auto_nodes"] else []
    rows = [((sweep, _shape(point)), point) for sweep, point in points]
    shown = (columns.MS, columns.SPEEDUP, columns.VERDICT, columns.TAU, columns.of("rows/pass", "rows_per_pass", 1))
    return with_gains(columns.table(title, ("sweep", "shape"), rows, shown), [point for _, point in points])


def _shape(point: Mapping[str, Any]) -> str:
    if point["width"] == 1:
        return f"chain of {point['depth']}"
    return f"depth {point['depth']}, width {point['width']}, {point['nodes']} nodes"


def _pairs(title: str, pairs: list[Mapping[str, Any]]) -> Table:
    rows = [((pair["equal"], pair["chain"], pair["tree"]), pair) for pair in pairs]
    return columns.table(f"{title}: what branching adds", ("equal", "chain", "tree"), rows, PAIRS)


PAIRS = (
    columns.Column(
        "rows/pass", lambda f: f"{number(f['chain_rows_per_pass'], 1)} and {number(f['tree_rows_per_pass'], 1)}"
    ),
    columns.ratio("tau, tree over chain", "tau", 3),
    columns.ratio("speed, tree over chain", "speed", 3),
    columns.VERDICT,
)


def _sentences(found: Mapping[str, Any]) -> Iterator[str]:
    deepest = max(point["depth"] for point in found["depth"])
    stop = found["stops_paying_at"]
    if found["depth_pays"] is False:
        yield f"no depth pays: none up to {deepest} is faster than plain decoding beyond the noise"
    elif stop is None:
        yield f"where depth stops paying cannot be told from depths up to {deepest}"
    else:
        yield f"depth stops paying at {stop}: none up to {deepest} is faster beyond the noise"
    best = found["best"]
    if best is None:
        yield "too few prompts to choose a shape and to tell of it on others"
        return
    first = {
        "faster": "best shape",
        "too few prompts": "too few prompts to say whether a shape pays; the best of them is",
    }.get(best["verdict"], "no shape is shown to pay; the best of them is")
    speed = f"{interval(best['speedup'])} times plain ({best['verdict'] or 'no noise floor'})"
    yield (
        f"{first} {best['spec']}: {speed}{_over(found)}; "
        f"chosen on {best['chosen_on']} prompts, told of the other {best['told_of']}"
    )


def _over(found: Mapping[str, Any]) -> str:
    """The best shape beside the default; nothing where no prompt timed both."""
    best = found["best"]
    if best["over_default"] is None:
        return ""
    said = f"{interval(best['over_default'], 3)} times the default {found['default']['spec']}"
    return f", {said} ({best['over_default_verdict'] or 'no noise floor'})"


def _chart(workload: str, drafters: Mapping[str, Any]) -> Chart:
    series = []
    for drafter, found in drafters.items():
        depths = tuple(float(point["depth"]) for point in found["depth"])
        speeds = [point["speedup"] or {} for point in found["depth"]]
        ys, lows, highs = (tuple(speed.get(key) for speed in speeds) for key in ("value", "low", "high"))
        series.append(Series(f"{drafter}: speed-up", depths, ys, lows, highs))
        series.append(Series(f"{drafter}: tau", depths, tuple(point["tau"] for point in found["depth"])))
    return Chart("lines", f"{workload}: depth", "depth", "times plain; tokens a pass", tuple(series), level=1.0)
