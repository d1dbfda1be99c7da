"""What `lab phases` shows: the split of the time, the formulas beside the clock, and the price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.lab import columns
from forerun.lab.bench import PLAIN
from forerun.lab.costs.stopwatch import PHASES
from forerun.lab.domains import noise_note
from forerun.lab.looping import with_gains
from forerun.lab.views import Chart, Note, Series, Table, View, interval, number

Found = Mapping[str, Any]
EVERY = 0.9  # share of steps with a draft from which a drafter is said to draft in every step


def view(figures: Found) -> list[View]:
    """Tables, a chart and sentences for each workload."""
    views: list[View] = [noise_note(figures["noise"])]
    for workload, found in figures["workloads"].items():
        views += _workload(workload, found)
    if figures["left_out"]:
        views.append(Note(f"left out, too long for the context: {', '.join(figures['left_out'])}"))
    return views


def _workload(name: str, found: Found) -> list[View]:
    drafters = found["drafters"]
    arms = {PLAIN: found["plain"], **drafters}
    views: list[View] = [_split(f"{name}: milliseconds {said}", arms, key) for said, key in _UNITS]
    views.append(Note(f"{name}: {_watch(arms)}"))
    views += [*with_gains(_prediction(name, drafters), list(drafters.values())), _leviathan(name, drafters)]
    seldom = {spec: _seldom(each["leviathan"]) for spec, each in drafters.items()}
    views += [Note(f"{name}, {spec}: {text}") for spec, text in seldom.items() if text]
    views += [_depths(f"{name}, {spec}: depth", each["leviathan"]) for spec, each in drafters.items()]
    views.append(_price(name, drafters))
    for spec, each in drafters.items():
        texts = [each["advice"] or "too few steps to say", *each["volume"]["warnings"]]
        views += [Note(f"{name}, {spec}: {text}") for text in dict.fromkeys(texts)]
    views.append(_chart(name, arms))
    return views


_UNITS = (("a token", "ms_per_token"), ("a step", "ms_per_step"))


def _split(title: str, arms: Mapping[str, Found], key: str) -> Table:
    rows = []
    for arm, found in arms.items():
        times = found["split"][key] if found["split"] else dict.fromkeys(PHASES)
        known = [ms for ms in times.values() if ms is not None]
        rows.append((arm, *(number(times[phase], 3) for phase in PHASES), number(sum(known) if known else None, 3)))
    return Table(title, ("arm", *PHASES, "all"), tuple(rows))


def _watch(arms: Mapping[str, Found]) -> str:
    said = ", ".join(f"{arm} {interval(found['watch'], 3)}" for arm, found in arms.items())
    return f"the stopwatch behind this split makes a token take so many times as long: {said}"


def _prediction(name: str, drafters: Mapping[str, Found]) -> Table:
    heads = (
        "drafter",
        "tau",
        "T(1) ms",
        "T_verify ms",
        "draft ms",
        "rest ms",
        "predicted",
        "measured",
        "error",
        "median prompt",
        "verdict",
    )
    rows = []
    for spec, each in drafters.items():
        p = each["prediction"] or {}
        keys = ("tau", "t1_ms", "t_verify_ms", "draft_ms", "rest_ms", "speedup", "measured")
        terms = [number(p.get(key), 3) for key in keys]
        error = f"{p['error_percent']:+.1f} %" if p else "-"
        rows.append((spec, *terms, error, interval(each["speedup"]), each["verdict"] or "-"))
    title = f"{name}: tau * T(1) / (T_verify + draft + rest), by step, and the clock (measured: all answers pooled)"
    return Table(title, heads, tuple(rows))


def _leviathan(name: str, drafters: Mapping[str, Found]) -> Table:
    heads = (
        "drafter",
        "alpha",
        "draft cost",
        "depth",
        "steps with guesses",
        "tokens by alpha",
        "by position",
        "measured tau",
        "best depth by alpha",
        "fastest depth",
        "loss",
    )
    rows = []
    for spec, each in drafters.items():
        found = each["leviathan"]
        if found is None:
            rows.append((spec, *("-" for _ in heads[1:])))
            continue
        keys = ("expected_tokens", "expected_by_position", "measured_tau")
        best = found["best"]
        choice = (str(best["predicted"]), str(best["measured"]), interval(best["loss"], 3)) if best else ("-", "-", "-")
        costs = (
            number(found["alpha"], 3),
            number(found["draft_cost"], 3),
            str(found["depth"]),
            f"{found['drafting_share']:.0%}",
        )
        rows.append((spec, *costs, *(number(found[key]) for key in keys), *choice))
    return Table(f"{name}: Leviathan's formulas beside what was measured (0 is plain decoding)", heads, tuple(rows))


def _seldom(found: Found | None) -> str | None:
    """What the formulas were made to assume of a drafter that leaves out steps; None where it hardly does."""
    if found is None or found["drafting_share"] >= EVERY:
        return None
    return (
        f"drafted in {found['drafting_share']:.0%} of the steps, where the paper assumes a draft in every step: its "
        "tokens and forwards are taken for these steps, and plain decoding's for the others"
    )


def _depths(title: str, found: Found | None) -> Table:
    return columns.table(title, (), [((), at) for at in (found["depths"] if found else ())], DEPTHS)


DEPTHS = (
    columns.word("depth", "depth"), columns.of("verify cost", "verify_cost", 3), columns.of("predicted", "predicted"),
    columns.of("measured", "measured"), columns.ratio("median prompt", "speedup"), columns.VERDICT, columns.TAU,
)  # fmt: skip


def _price(name: str, drafters: Mapping[str, Found]) -> Table:
    heads = ("drafter", "rows/token", "thrown away", "cpu ms/token", "plain's", "times plain's")
    keys = ("rows_per_token", "thrown_away_per_token", "cpu_ms_per_token", "plain_cpu_ms_per_token", "cpu_ratio")
    rows = [(spec, *(number((each["price"] or {}).get(key)) for key in keys)) for spec, each in drafters.items()]
    return Table(f"{name}: the price of speed", heads, tuple(rows))


def _chart(name: str, arms: Mapping[str, Found]) -> Chart:
    known = {arm: found["split"]["ms_per_token"] for arm, found in arms.items() if found["split"]}
    series = tuple(Series(phase, tuple(known), tuple(times[phase] for times in known.values())) for phase in PHASES)
    return Chart("stack", f"{name}: where a token's time goes", "", "milliseconds", series)
