"""Does a bigger target gain more from speculation, and what does its drafter cost in absolute time?

Targets are visited one at a time, there and back, each with its own drafters. What may be compared is each one's
speed-up over its own plain decoding; milliseconds are given as what they are, with both visits. Nothing is concluded
about size from targets that differ in more: see `kin`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.core.errors import SpecError
from forerun.lab import columns
from forerun.lab.bench import AGAIN, PLAIN, Bench
from forerun.lab.domains import noise_note
from forerun.lab.looping import with_gains
from forerun.lab.paired import Asked, LogFor, Samples, arm_figures, measure, noise, noise_figures, rounded
from forerun.lab.run import Answers, Run
from forerun.lab.sample import Sample
from forerun.lab.sweeps.groups import placed
from forerun.lab.sweeps.kin import Candidate, conclusion, facts, said
from forerun.lab.sweeps.passes import Loader, Visits, visit
from forerun.lab.sweeps.size_costs import view as predicted
from forerun.lab.views import Chart, Note, Table, View, measured, number
from forerun.workloads.workload import Workload


def share_out(models: Sequence[str], given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Each model's drafters: those given as MODEL=SPEC, or else those given without a model. SpecError for fewer than
    two models, a model twice, or one without a drafter."""
    if len(set(models)) < max(2, len(models)):
        raise SpecError(f"sizes are compared between two or more different models (-m A -m B), got {', '.join(models)}")
    own: dict[str, list[str]] = {model: [] for model in models}
    common: list[str] = []
    for text in given:
        named = max((m for m in models if text.startswith(f"{m}=")), key=len, default=None)
        (common if named is None else own[named]).append(text if named is None else text[len(named) + 1 :])
    found = {model: tuple(dict.fromkeys(specs or common)) for model, specs in own.items()}
    for model, specs in found.items():
        if not specs:
            raise SpecError(f"{model} has no drafter: give one for it (-d {model}=SPEC) or one for all (-d SPEC)")
    return found


def run_size(
    loader: Loader,
    run: Run,
    candidates: Sequence[Candidate],
    workloads: Sequence[Workload],
    asked: Asked,
    log: LogFor | None = None,
) -> tuple[dict[str, Any], list[dict[str, object]]]:
    """The figures and the samples they come from; every target is visited twice."""
    known: dict[int, dict[str, Any]] = {}

    def one(bench: Bench, number: int, key: str) -> Samples:
        known[number] = facts(bench)
        arms = [bench.plain(), bench.plain(AGAIN), *(bench.arm(spec) for spec in candidates[number].drafters)]
        place = f"{key}, {known[number]['model']}"
        return measure(bench, run, arms, workloads, asked, key=place, log=placed(log, place))

    visits = visit(loader, [candidate.config for candidate in candidates], one)
    names = [work.name for work in workloads]
    targets = [
        {**known[i], "sets": _sets(visits[i], names, candidate.drafters)} for i, candidate in enumerate(candidates)
    ]
    samples = [{"model": known[i]["model"], **row} for i, v in enumerate(visits) for row in v.samples.to_json()]
    left_out = [f"{known[i]['model']}: {name}" for i, v in enumerate(visits) for name in v.left_out]
    return {"targets": targets, "differ": conclusion(targets), "left_out": left_out}, samples


def _sets(visits: Visits, workloads: Sequence[str], drafters: Sequence[str]) -> dict[str, Any]:
    sets = {}
    for name in workloads:
        samples = visits.samples.of(name)
        if samples.units:
            floor = noise(samples) if samples.pairs(PLAIN, AGAIN) else None
            sets[name] = {
                "noise": noise_figures(samples),
                "visits_ms_per_token": visits.plain_ms(name),
                "t1_ms": per_step(samples.arm(PLAIN), "score"),
                "drafters": {
                    spec: {**arm_figures(samples, spec, floor=floor), **costs(samples.arm(spec))} for spec in drafters
                },
            }
    return sets


def costs(samples: Sequence[Sample]) -> dict[str, float | None]:
    """What drafting and verifying take, in milliseconds of a step, and of a drafted token."""
    seconds, steps = sum(s.phases.get("draft", 0.0) for s in samples), sum(s.steps for s in samples)
    guessed = sum(s.rows - s.steps * s.answers for s in samples)  # rows beside the roots, over the time measured
    return {
        "draft_ms_per_step": rounded(1e3 * seconds / steps) if steps else None,
        "draft_ms_per_guess": rounded(1e3 * seconds / guessed) if guessed > 0 else None,
        "verify_ms_per_step": per_step(samples, "score"),
    }


def per_step(samples: Sequence[Sample], phase: str) -> float | None:
    """Milliseconds of a phase in a step; None without steps."""
    steps = sum(sample.steps for sample in samples)
    return rounded(1e3 * sum(s.phases.get(phase, 0.0) for s in samples) / steps) if steps else None


def answers(
    figures: Mapping[str, Any], candidates: Sequence[Candidate], dataset: str, relative_to: str | None = None
) -> Answers:
    """The five answers of such a run."""
    return Answers(
        relative_to=relative_to or "plain decoding of the same target, prompt by prompt in turn",
        stack="; ".join(target["stack"] for target in figures["targets"]),
        data=dataset,
        shape="; ".join(f"{c.model}: {', '.join(c.drafters)}" for c in candidates),
    )


def view(figures: Mapping[str, Any]) -> list[View]:
    """A table and a chart a workload, or of what was predicted; and whether size alone differs."""
    if "acceptance" in figures:
        return predicted(figures)
    views: list[View] = []
    for name in dict.fromkeys(name for target in figures["targets"] for name in target["sets"]):
        shown = [(target, target["sets"][name]) for target in figures["targets"] if name in target["sets"]]
        each = [f for _, found in shown for f in found["drafters"].values()]
        views += [*with_gains(_table(name, shown), each), _chart(name, shown)]
        views += [Note(f"{target['model']}: {noise_note(found['noise']).text}") for target, found in shown]
    if figures["left_out"]:
        views.append(Note(f"left out, too long for the context: {', '.join(figures['left_out'])}"))
    return [*views, Note(said(figures["differ"]))]


COLUMNS = (
    columns.SPEEDUP, columns.VERDICT, columns.TAU, columns.ACCEPTED,
    columns.of("draft ms/step", "draft_ms_per_step", 3), columns.of("draft ms/guess", "draft_ms_per_guess", 3),
    columns.of("verify ms/step", "verify_ms_per_step", 3),
)  # fmt: skip


def _table(name: str, shown: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Table:
    rows = []
    for target, found in shown:
        visits = " and ".join(number(ms) for ms in found["visits_ms_per_token"])
        own = target["model"], number(target["weight_bytes"] / 1e6, 1), visits, number(found["t1_ms"])
        rows += [((*own, spec), f) for spec, f in found["drafters"].items()]
    title = f"{name}: speed-up over the target's own plain decoding"
    return columns.table(title, ("target", "MB read", "plain ms, visits", "T(1) ms", "drafter"), rows, COLUMNS)


def _chart(name: str, shown: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Chart:
    series = []
    for spec in dict.fromkeys(spec for _, found in shown for spec in found["drafters"]):
        own = [(target["model"], found["drafters"][spec]) for target, found in shown if spec in found["drafters"]]
        series.append(measured(spec, [model for model, _ in own], [f["speedup"] for _, f in own]))
    return Chart("bars", f"{name}: speed-up by target", "", "times", tuple(series), level=1.0)
