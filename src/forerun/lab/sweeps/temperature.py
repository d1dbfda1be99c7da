"""How speculation fares as answers are drawn more freely: what is less certain is guessed less often.

A drafter whose drafts are `chosen` or `foreseen` leaves the text of a seed as it is, so both ways do the same work and
`same text` must count every answer; one that draws for itself (law `sampled`) is as lossless, but writes another text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from forerun.lab.arms import Arm, EngineArm
from forerun.lab.bench import Bench
from forerun.lab.domains import data
from forerun.lab.paired import Asked, LogFor, Samples, measure
from forerun.lab.run import Answers, Run
from forerun.lab.sweeps.groups import placed
from forerun.lab.sweeps.points import run_points
from forerun.workloads.workload import Workload

KEPT = frozenset({"chosen", "foreseen"})
"""Laws of drafts that leave the text of a seed as plain decoding writes it."""


def run_temperature(
    bench: Bench,
    run: Run,
    values: Sequence[float],
    top_p: float,
    drafters: Sequence[str],
    workloads: Sequence[Workload],
    asked: Asked,
    log: LogFor | None = None,
) -> tuple[dict[str, Any], Samples]:
    """The figures and what they come from, at each temperature, each workload apart. Draws have the seed
    `asked.seed`."""
    keeps: dict[str, bool] = {}

    def ask(value: float, key: str, arms: Sequence[Arm]) -> Samples:
        keeps.update(
            {arm.name: arm.engine.parts.drafter.laws <= KEPT for arm in arms[2:] if isinstance(arm, EngineArm)}
        )
        here = replace(asked, params=drawn(asked.params, value, top_p, asked.seed))
        return measure(bench, run, arms, workloads, here, key=key, log=placed(log, key))

    figures, samples = run_points(bench, run, "temperature", values, drafters, ask)
    return figures | {"top_p": top_p, "keeps_text": keeps, "notes": notes(figures["sets"], keeps)}, samples


def drawn(params: Mapping[str, Any], temperature: float, top_p: float, seed: int) -> dict[str, Any]:
    """Parameters of one temperature; at 0 nothing is drawn."""
    return {**params, "temperature": temperature, "top_p": top_p, "seed": seed} if temperature else dict(params)


def notes(sets: Mapping[str, Any], keeps: Mapping[str, bool]) -> list[str]:
    """Where a text changed that should not have, and which drafters write their own."""
    said = [
        f"{spec} draws for itself: other texts than plain decoding's, by the same law"
        for spec in keeps
        if not keeps[spec]
    ]
    for name, found in sets.items():
        for here in found["points"]:
            for spec, kept in keeps.items():
                f = here["arms"][spec]
                if kept and f["same_text"] < f["answers"]:
                    said.append(
                        f"{name}, temperature {here['value']:g}: {spec} changed {f['answers'] - f['same_text']} of "
                        f"{f['answers']} texts, which it should leave as they are: see `lab lossless`"
                    )
    return said


def answers(
    bench: Bench,
    values: Sequence[float],
    top_p: float,
    drafters: Sequence[str],
    works: Sequence[Workload],
    asked: Asked,
) -> Answers:
    """The five answers of such a run."""
    how = f"temperatures {', '.join(f'{value:g}' for value in values)}, top-p {top_p:g}, seed {asked.seed}"
    return Answers(
        relative_to="plain decoding through the same engine at the same temperature, prompt by prompt in turn",
        stack=bench.stack,
        data=data(works, asked).replace("greedy", how),
        shape="; ".join(drafters) or "none",
    )
