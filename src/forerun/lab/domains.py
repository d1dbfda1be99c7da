"""Does it pay, and on which texts? Every drafter on every workload, beside plain decoding.

Acceptance belongs to the texts: a drafter that doubles the speed of edits may do nothing for dialogue. So figures are
never pooled over workloads, except the noise floor, which belongs to the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.lab import columns
from forerun.lab.arms import Arm
from forerun.lab.bench import AGAIN, PLAIN, Bench
from forerun.lab.looping import with_gains
from forerun.lab.paired import Asked, LogFor, Samples, arm_figures, measure, noise, noise_figures
from forerun.lab.run import Answers, Run
from forerun.lab.views import Chart, Note, Series, Table, View, interval, measured
from forerun.workloads.workload import Workload

ANSWER = (
    "speed-up: time a token after the first, median of the prompts; "
    "whole answer: from asking to the end, prompt reading included, sum over all prompts"
)


def run_domains(
    bench: Bench,
    run: Run,
    drafters: Sequence[str],
    workloads: Sequence[Workload],
    asked: Asked,
    log: LogFor | None = None,
    baselines: Sequence[Arm] | None = None,
) -> tuple[dict[str, Any], Samples]:
    """The figures and what they come from. Arms are plain decoding twice, an engine for each drafter spec, and
    `baselines`; None is the bare loop if it can run."""
    if baselines is None:
        baselines = [] if asked.params.get("temperature") else [bench.bare()]
    arms = [bench.plain(), bench.plain(AGAIN), *(bench.arm(spec) for spec in drafters), *baselines]
    samples = measure(bench, run, arms, workloads, asked, log=log)
    names = [*drafters, *(arm.name for arm in baselines)]
    found = {
        "workloads": {work.name: _workload(samples.of(work.name), names) for work in workloads},
        "noise": noise_figures(samples),
        "memory_mb": dict(bench.grown_mb),
        "left_out": list(samples.left_out),
    }
    return found, samples


def _workload(samples: Samples, names: Sequence[str]) -> dict[str, Any]:
    floor = noise(samples) if samples.pairs(PLAIN, AGAIN) else None
    return {
        "prompts": len({unit.prompt for unit in samples.units}),
        "noise": noise_figures(samples),
        "arms": {name: arm_figures(samples, name, floor=floor) for name in (PLAIN, *names)},
    }


def answers(
    bench: Bench, drafters: Sequence[str], workloads: Sequence[Workload], asked: Asked, beside: Sequence[str] = ()
) -> Answers:
    """The five answers of such a run; `beside` are other engines that took part, in words."""
    return Answers(
        stack="; beside it ".join([bench.stack, *beside]),
        data=data(workloads, asked),
        shape="; ".join(drafters) or "none",
    )


def data(workloads: Sequence[Workload], asked: Asked) -> str:
    """Which prompts, how many and how answered, in one line."""
    sets = ", ".join(f"{work.name} ({len(work.prompts)} prompts, {work.digest})" for work in workloads)
    p = asked.params
    how = f"temperature {p['temperature']:g}, seed {p.get('seed')}" if p.get("temperature") else "greedy"
    ends = ", end of text suppressed" if p.get("ignore_eos") else ""
    return f"{sets}; at most {p['max_tokens']} tokens an answer{ends}, {how}, {asked.rounds} rounds"


def view(figures: Mapping[str, Any]) -> list[View]:
    """A table a workload, a chart of all, and whether the machine was quiet."""
    views: list[View] = [noise_note(figures["noise"])]
    for name, found in figures["workloads"].items():
        views += with_gains(_table(name, found), list(found["arms"].values()))
    views.append(Note(ANSWER))
    views.append(_chart(figures["workloads"]))
    views += [chart for name, found in figures["workloads"].items() if (chart := _by_position(name, found))]
    if figures["memory_mb"]:
        grown = ", ".join(f"{arm} {mb:.1f} MB" for arm, mb in figures["memory_mb"].items())
        views.append(Note(f"by how much the process grew for each arm: {grown}"))
    if figures["left_out"]:
        views.append(Note(f"left out, too long for the context: {', '.join(figures['left_out'])}"))
    return views


def noise_note(floor: Mapping[str, Any] | None) -> Note:
    """What two runs of plain decoding say of the machine."""
    if floor is None:
        return Note("no noise floor: answers were too short to time")
    mood = "" if floor["calm"] else "; the machine was NOT quiet: trust no small difference of this run"
    return Note(f"noise floor (plain decoding against itself): {interval(floor, 3)}{mood}")


COLUMNS = (
    columns.MS, columns.SPEEDUP, columns.VERDICT, columns.ANSWER, columns.TAU, columns.ACCEPTED,
    columns.count("drafted", "drafted"), columns.share("draft share", "draft_share"), columns.SAME,
)  # fmt: skip


def _table(name: str, found: Mapping[str, Any]) -> Table:
    title = f"{name}: {found['prompts']} prompts, noise {interval(found['noise'], 3)}"
    return columns.table(title, ("arm",), [((arm,), f) for arm, f in found["arms"].items()], COLUMNS)


def _chart(workloads: Mapping[str, Any]) -> Chart:
    arms = dict.fromkeys(arm for found in workloads.values() for arm in found["arms"] if arm != PLAIN)
    series = [
        measured(arm, list(workloads), [found["arms"][arm]["speedup"] for found in workloads.values()]) for arm in arms
    ]
    return Chart("bars", "Speed-up over plain decoding", "", "times", tuple(series), level=1.0)


def _by_position(name: str, found: Mapping[str, Any]) -> Chart | None:
    """How often a guess at each depth stood; None where nothing was guessed."""
    rates = {arm: ys for arm, f in found["arms"].items() if (ys := f.get("acceptance_by_position"))}
    series = tuple(Series(arm, tuple(range(1, len(ys) + 1)), tuple(ys)) for arm, ys in rates.items())
    title = f"{name}: guesses that stood, of those that were judged"
    return Chart("lines", title, "tokens ahead", "part", series) if series else None
