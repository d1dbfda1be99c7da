"""What a run of `lab advise` shows: for each workload what to do, what was measured, what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.lab import columns
from forerun.lab.domains import noise_note
from forerun.lab.looping import with_gains
from forerun.lab.views import Chart, Note, Series, Table, View, interval

LISTED, DRAWN = 8, 12  # candidates in the table and in the chart; the file has all


def view(figures: Mapping[str, Any]) -> list[View]:
    """Tables and a chart for each workload, and last what to do."""
    views: list[View] = []
    for name, found in figures["workloads"].items():
        live = with_gains(_live_table(name, found), list(found["arms"].values()))
        views += [noise_note(found["noise"]), *live]
        if found["candidates"]:  # none where no drafter can be replayed
            views += [_expected(name, found), _chart(name, found)]
        views += _notes(name, found)
        views += [Note(text) for text in _said(name, found["recommend"])]
    return views


def _said(name: str, advice: Mapping[str, Any]) -> list[str]:
    left = f" Not tried: {', '.join(advice['not_tried'])}; more --seconds try them." if advice["not_tried"] else ""
    if advice["speculate"] is None:
        return [f"{name}: whether to speculate: no conclusion, {advice['why']}.{left}", advice["command"]]
    if not advice["speculate"]:
        tried = ", ".join(advice["tried"])
        return [f"{name}: do not speculate with what was tried ({tried}): {advice['why']}.{left}", advice["command"]]
    gain = f"{interval(advice['speedup_total'])} times as fast in all"
    if advice["speedup_answer"]:
        gain += f" ({interval(advice['speedup_answer'])} with the reading of the prompt)"
    return [
        f"{name}: speculate with {advice['spec']}: {gain}, {advice['why']}.{left}",
        advice["command"],
        f"nearest in vLLM: {advice['vllm']}",
        f"nearest in llama.cpp: {advice['llama_cpp']}",
    ]


def _notes(name: str, found: Mapping[str, Any]) -> list[Note]:
    """What a reader must know beside the tables."""
    notes = []
    if found["untried"]:
        notes.append(Note(f"{name}: not tried for want of time or hope: {', '.join(found['untried'])}"))
    if found["left_out"]:
        notes.append(Note(f"left out, too long for the context: {', '.join(found['left_out'])}"))
    spent, budget = found["seconds"]["total"], found["budget_s"]
    if spent > budget:
        notes.append(Note(f"{name}: took {spent:.0f} s where {budget:.0f} s were asked for: less would say nothing"))
    return notes


def _live_table(name: str, found: Mapping[str, Any]) -> Table:
    live = found["live"]
    title = f"{name}: {live['prompts']} prompts, rounds {live['rounds']}, noise {interval(found['noise'], 3)}"
    return columns.table(title, ("measured",), [((arm,), f) for arm, f in found["arms"].items()], LIVE)


LIVE = (
    columns.MS,
    columns.ratio("speed-up (median)", "speedup"),
    columns.ratio("in all", "speedup_total"),
    columns.Column("verdict of that", lambda f: f["verdict_total"] or "-"),
    columns.ANSWER,
)


def _expected(name: str, found: Mapping[str, Any]) -> Table:
    title = f"{name}: expected from {found['prompts']} answers, the best of {len(found['candidates'])}"
    return columns.table(title, (), [((), each) for each in found["candidates"][:LISTED]], EXPECTED)


EXPECTED = (
    columns.word("candidate", "spec"), columns.of("speed-up", "speedup"), columns.TAU,
    columns.of("draft ms/token", "draft_ms_per_token", 3), columns.of("rows/step", "rows_per_step"),
    columns.word("answers", "answers"),
)  # fmt: skip


def _chart(name: str, found: Mapping[str, Any]) -> Chart:
    best = found["candidates"][:DRAWN]
    ys = tuple(entry["speedup"] for entry in best)
    series = Series("expected", tuple(entry["spec"] for entry in best), ys)
    return Chart("bars", f"{name}: expected speed-up", "", "times", (series,), level=1.0)
