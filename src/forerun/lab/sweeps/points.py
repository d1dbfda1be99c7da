"""One condition changed step by step, all arms at each step: where does speculation stop paying?

    {"axis": "batch", "sets": {name: {"points": [{"value", "noise", "arms"}], "crosses": {arm: value or null}}}}

A new axis is one file of cli/lab, a command and a preset of `lab sweep --over`: options, values, and what is asked at
each of them (threads.py is the shortest).

A set is a collection of prompts that is never pooled with another. Speed-ups are against plain decoding at the same
point, never across points: between two points lie minutes, and the machine's mood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from forerun.lab import columns
from forerun.lab.arms import Arm
from forerun.lab.bench import AGAIN, PLAIN, Bench
from forerun.lab.looping import with_gains
from forerun.lab.paired import Samples, Unit, arm_figures, noise, noise_figures, rounded
from forerun.lab.run import Run
from forerun.lab.views import Chart, Note, Series, Table, View, interval, measured


@dataclass(frozen=True, slots=True)
class Axis:
    """What is swept, for people."""

    label: str
    log_x: bool


AXES = {
    "batch": Axis("requests at once", True),
    "context": Axis("tokens of the prompt", True),
    "temperature": Axis("temperature", False),
}
"""Those that need more to be said than their name; others are drawn on a plain axis under it."""


def run_points(
    bench: Bench,
    run: Run,
    axis: str,
    values: Sequence[Any],
    drafters: Sequence[str],
    ask: Callable[[Any, str, Sequence[Arm]], Samples],
) -> tuple[dict[str, Any], Samples]:
    """The figures of an axis and what they come from. At each value `ask(value, key, arms)` has the arms answer, plain
    decoding twice and every drafter; `key` sets the units of this value apart."""
    arms = [bench.plain(), bench.plain(AGAIN), *(bench.arm(spec) for spec in drafters)]
    points: dict[str, list[dict[str, Any]]] = {}
    units: list[Unit] = []
    left_out: tuple[str, ...] = ()
    for value in values:
        samples = ask(value, f"{axis} {value:g}", arms)
        for name in dict.fromkeys(unit.workload for unit in samples.units):
            points.setdefault(name, []).append(point(value, samples.of(name), drafters))
        units += samples.at(value).units
        left_out = samples.left_out
    sets = {name: sweep(found, drafters) for name, found in points.items()}
    figures = {"axis": axis, "sets": sets, "memory_mb": dict(bench.grown_mb), "left_out": list(left_out)}
    return figures, Samples(units, left_out)


def point(value: float, samples: Samples, names: Sequence[str]) -> dict[str, Any]:
    """One step's figures: the noise floor and every arm against plain decoding. `first_ms` is the time until every
    answer had its first token: the reading of prompts."""
    floor = noise(samples) if samples.pairs(PLAIN, AGAIN) else None
    arms = {
        name: {
            **arm_figures(samples, name, floor=floor),
            "first_ms": rounded(1e3 * median(sample.first_s for sample in samples.arm(name))),
        }
        for name in (PLAIN, *names)
    }
    return {"value": value, "noise": noise_figures(samples), "arms": arms}


def sweep(points: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """A set's figures: its points in ascending order, and where each arm first fails to be faster."""
    ordered = sorted(points, key=lambda found: float(found["value"]))
    return {"points": ordered, "crosses": {name: crosses(ordered, name) for name in names}}


def crosses(points: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The first value at which an arm's speed-up is not above 1 beyond the noise; None if there is none such among
    those that had enough prompts to say."""
    for found in points:
        if found["arms"][name]["verdict"] in ("slower", "no difference"):
            value: float = found["value"]
            return value
    return None


def view(figures: Mapping[str, Any]) -> list[View]:
    """For each set a table, where the arms cross, and charts of speed-up and of tokens a second."""
    axis = AXES.get(figures["axis"], Axis(figures["axis"], False))
    views: list[View] = []
    for name, found in figures["sets"].items():
        views += [*_table(name, figures["axis"], found["points"]), *crossings(figures["axis"], found)]
        views += _charts(name, axis, found["points"])
    for text in figures.get("notes", []):
        views.append(Note(text))
    if figures.get("left_out"):
        views.append(Note(f"left out, too long for the context: {', '.join(figures['left_out'])}"))
    return views


COLUMNS = (
    columns.MS, columns.RATE, columns.SPEEDUP, columns.VERDICT, columns.TAU, columns.ACCEPTED,
    columns.of("first ms", "first_ms", 0), columns.SAME,
)  # fmt: skip


def _table(name: str, axis: str, points: Sequence[Mapping[str, Any]]) -> list[View]:
    plain = points[0]["arms"][PLAIN]
    shown = (*COLUMNS, *(columns.share(key, key) for key in ("filled",) if key in plain))
    again = {"speed-up": lambda floor: interval(floor, 3), "verdict": _mood}
    rows, figures = [], list[Mapping[str, Any] | None]()
    for found in points:
        for arm, f in found["arms"].items():
            rows.append((f"{found['value']:g}", arm, *(column.tell(f) for column in shown)))
            figures.append(f)
            if arm == PLAIN:
                cells = (again.get(column.head, lambda floor: "-")(found["noise"]) for column in shown)
                rows.append((f"{found['value']:g}", AGAIN, *cells))
                figures.append(None)
    title = f"{name}: {plain['prompts']} units at {points[0]['value']:g}"
    return with_gains(Table(title, (axis, "arm", *(column.head for column in shown)), tuple(rows)), figures)


def _mood(floor: Mapping[str, Any] | None) -> str:
    return "-" if floor is None else "quiet" if floor["calm"] else "NOT quiet"


def crossings(axis: str, found: Mapping[str, Any]) -> list[Note]:
    """Where each arm of a set stops being faster, in words; nothing is claimed of points with too few prompts."""
    notes = []
    for arm, where in found["crosses"].items():
        verdicts = {point["value"]: point["arms"][arm]["verdict"] for point in found["points"]}
        known = {value: verdict for value, verdict in verdicts.items() if verdict not in (None, "too few prompts")}
        unknown = [value for value in verdicts if value not in known]
        if not known:
            notes.append(Note(f"{arm}: too few prompts to say"))
            continue
        if where is None:
            every = f"every {axis} measured, {min(known):g} to {max(known):g}"
            said = f"faster than plain decoding at {f'{axis} {_listed(known)}' if unknown else every}"
        else:
            later = [value for value, verdict in known.items() if value > where and verdict == "faster"]
            place = f"at {axis} {where:g}, but again at {_listed(later)}" if later else f"from {axis} {where:g} on"
            said = f"not faster than plain decoding {place}"
        few = f"; too few prompts to say at {axis} {_listed(unknown)}" if unknown else ""
        notes.append(Note(f"{arm}: {said}{few}"))
    return notes


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _charts(name: str, axis: Axis, points: Sequence[Mapping[str, Any]]) -> list[Chart]:
    xs = tuple(found["value"] for found in points)
    arms = list(points[0]["arms"])
    speeds, rates = [], []
    for arm in arms:
        found = [point["arms"][arm] for point in points]
        rates.append(Series(arm, xs, tuple(f["tokens_per_s"] for f in found)))
        if arm != PLAIN:
            speeds.append(measured(arm, xs, [f["speedup"] for f in found]))
    title = f"{name}: speed-up over plain decoding"
    return [
        Chart("lines", title, axis.label, "times", tuple(speeds), level=1.0, log_x=axis.log_x),
        Chart("lines", f"{name}: tokens a second", axis.label, "tokens/s", tuple(rates), log_x=axis.log_x),
    ]
