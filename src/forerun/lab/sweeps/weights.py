"""Weight formats and KV formats: what each does to plain decoding, to acceptance, and to the draft length that is best.

A smaller format makes plain decoding cheaper, and a forward of many rows dearer beside it: the arithmetic stays where
the reading of memory shrinks. So a draft length that is best for one format need not be for another. A draft length is
said to be as good as the best one if the two cannot be told apart, prompt by prompt, beyond the noise; with too few
prompts for that, no length is called the best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from forerun.assemble import Config, choice_for
from forerun.core.errors import SpecError
from forerun.core.options import Spec, build
from forerun.drafters.specs import split_plan
from forerun.lab import columns
from forerun.lab.bench import AGAIN, PLAIN, Bench
from forerun.lab.domains import noise_note
from forerun.lab.looping import with_gains
from forerun.lab.paired import Asked, LogFor, Samples, arm_figures, measure, noise, noise_figures
from forerun.lab.run import Answers, Run
from forerun.lab.stats import ratio, verdict
from forerun.lab.sweeps.groups import placed
from forerun.lab.sweeps.passes import Loader, Visits, visit
from forerun.lab.views import Chart, Note, Table, View, measured, number
from forerun.workloads.workload import Workload


def formats(config: Config, weights: Sequence[str], kv: Sequence[str]) -> list[Config]:
    """A config for every combination; SpecError for one that the runtime does not have."""
    found: list[Config] = []
    for w in weights:
        for k in kv:
            one = build(Config, {**asdict(config), "weights": w, "kv": k}, "engine")
            choice_for(one)
            found.append(one)
    return found


def deepened(spec: str, depths: Sequence[int]) -> dict[int, str]:
    """The drafter at every depth; SpecError for one that heeds none, or has been given one."""
    parsed = Spec.parse(spec)
    if "depth" in parsed.values:
        raise SpecError(f"depth is what `lab weights` varies: leave it out of {spec!r} and give --depths")
    made = {}
    for depth in depths:
        options = {**parsed.values, "depth": depth}
        made[depth] = f"{parsed.name}:" + ",".join(f"{key}={value}" for key, value in options.items())
        split_plan(Spec.parse(made[depth]))  # refuses a drafter without depth
    return made


def run_weights(
    loader: Loader,
    run: Run,
    configs: Sequence[Config],
    drafters: Sequence[str],
    depths: Sequence[int],
    workloads: Sequence[Workload],
    asked: Asked,
    log: LogFor | None = None,
) -> tuple[dict[str, Any], list[dict[str, object]]]:
    """The figures and the samples they come from; every config is visited twice."""
    arms = {spec: deepened(spec, depths) for spec in drafters}
    specs = [spec for made in arms.values() for spec in made.values()]
    facts: dict[int, dict[str, Any]] = {}

    def one(bench: Bench, number: int, key: str) -> Samples:
        facts[number] = _facts(bench, configs[number])
        every = [bench.plain(), bench.plain(AGAIN), *(bench.arm(spec) for spec in specs)]
        place = f"{key}, {facts[number]['name']}"
        return measure(bench, run, every, workloads, asked, key=place, log=placed(log, place))

    visits = visit(loader, configs, one)
    names = [work.name for work in workloads]
    found = [{**facts[i], "sets": _sets(visits[i], names, arms)} for i in range(len(configs))]
    samples = [{"format": facts[i]["name"], **row} for i, v in enumerate(visits) for row in v.samples.to_json()]
    figures = {
        "depths": list(depths),
        "formats": found,
        "interplay": interplay(found, names, drafters),
        "left_out": list(dict.fromkeys(name for v in visits for name in v.left_out)),
    }
    return figures, samples


def _facts(bench: Bench, config: Config) -> dict[str, Any]:
    subject = bench.subject
    return {
        "name": f"{config.weights} weights, {config.kv} kv",
        "weights": subject.weights,
        "formats": dict(subject.formats),
        "kv": subject.kv,
        "weight_bytes": subject.weight_bytes,
        "kv_bytes_per_token": subject.token_bytes,
        "stack": bench.stack,
    }


def _sets(visits: Visits, workloads: Sequence[str], arms: Mapping[str, Mapping[int, str]]) -> dict[str, Any]:
    """By workload: plain decoding, its two visits, the noise floor, and every drafter at every depth."""
    sets = {}
    for name in workloads:
        samples = visits.samples.of(name)
        if samples.units:
            sets[name] = {
                "noise": noise_figures(samples),
                "plain_ms_per_token": arm_figures(samples, PLAIN)["ms_per_token"],
                "visits_ms_per_token": visits.plain_ms(name),
                "drafters": {spec: _depths(samples, made) for spec, made in arms.items()},
            }
    return sets


def _depths(samples: Samples, made: Mapping[int, str]) -> dict[str, Any]:
    """A drafter's figures by depth, the best of them, and those that cannot be told from it; or `unknown`, why neither
    can be said."""
    floor = noise(samples) if samples.pairs(PLAIN, AGAIN) else None
    found = {depth: arm_figures(samples, spec, floor=floor) for depth, spec in made.items()}
    depths = {str(depth): f for depth, f in found.items()}
    timed = [depth for depth, f in found.items() if f["speedup"]]
    if not timed or floor is None:
        return {"best_depth": None, "as_good": [], "unknown": "answers were too short to time", "depths": depths}
    best = max(timed, key=lambda depth: float(found[depth]["speedup"]["value"]))
    shared = {depth: samples.pairs(made[depth], made[best]) for depth in timed}
    said = {depth: verdict(ratio(pairs), floor) if pairs else "too few prompts" for depth, pairs in shared.items()}
    if "too few prompts" in said.values():
        return {"best_depth": None, "as_good": [], "unknown": "too few prompts to say", "depths": depths}
    as_good = [depth for depth in timed if said[depth] != "faster"]
    return {"best_depth": best, "as_good": as_good, "unknown": None, "depths": depths}


def interplay(formats: Sequence[Mapping[str, Any]], workloads: Sequence[str], drafters: Sequence[str]) -> list[str]:
    """What can be said of draft length against format: it depends on it where no depth is as good as the best in all of
    them. Nothing is concluded where one format's best depth is not known."""
    said = []
    for name in workloads:
        for spec in drafters:
            best = {f["name"]: f["sets"][name]["drafters"][spec] for f in formats if name in f["sets"]}
            listed = "; ".join(f"{format}: {_best(found)}" for format, found in best.items())
            if not best or any(found["unknown"] for found in best.values()):
                end = "no conclusion about formats"
            elif shared := set.intersection(*(set(found["as_good"]) for found in best.values())):
                end = f"depth {min(shared)} is as good as the best in every format"
            else:
                end = "no depth is among the best in every format: the best draft length depends on the format"
            said.append(f"{name}, {spec}: best depth by format: {listed or 'no prompt fits'}; {end}")
    return said


def _best(found: Mapping[str, Any]) -> str:
    if found["unknown"]:
        return str(found["unknown"])
    return f"{found['best_depth']} (as good: {', '.join(map(str, found['as_good']))})"


def answers(configs: Sequence[Config], figures: Mapping[str, Any], drafters: Sequence[str], dataset: str) -> Answers:
    """The five answers of such a run."""
    return Answers(
        relative_to="plain decoding in the same format, prompt by prompt in turn; no format is timed against another",
        stack="; ".join(found["stack"] for found in figures["formats"]),
        data=f"{dataset}; every format visited twice",
        shape=f"{'; '.join(drafters)} at depths {', '.join(map(str, figures['depths']))}",
    )


def view(figures: Mapping[str, Any]) -> list[View]:
    """By workload a table of formats, drafters and depths with a chart of speed-ups; then the interplay."""
    views: list[View] = []
    names = dict.fromkeys(name for found in figures["formats"] for name in found["sets"])
    for name in names:
        shown = {found["name"]: found["sets"][name] for found in figures["formats"] if name in found["sets"]}
        drafters = [drafter for found in shown.values() for drafter in found["drafters"].values()]
        each = [f for drafter in drafters for f in drafter["depths"].values()]
        views.append(_plain_table(name, shown, figures["formats"]))
        views += [*with_gains(_table(name, shown), each), *_charts(name, shown)]
        views += [Note(f"{format}: {noise_note(found['noise']).text}") for format, found in shown.items()]
    if figures["left_out"]:
        views.append(Note(f"left out, too long for the context: {', '.join(figures['left_out'])}"))
    return [*views, *map(Note, figures["interplay"])]


def _plain_table(name: str, shown: Mapping[str, Any], formats: Sequence[Mapping[str, Any]]) -> Table:
    sizes = {found["name"]: found["weight_bytes"] / 1e6 for found in formats}
    rows = [
        (
            format,
            number(sizes[format], 1),
            number(found["plain_ms_per_token"]),
            " and ".join(number(ms) for ms in found["visits_ms_per_token"]),
        )
        for format, found in shown.items()
    ]
    return Table(f"{name}: plain decoding", ("format", "MB read", "ms/token", "at each visit"), tuple(rows))


COLUMNS = (columns.MS, columns.SPEEDUP, columns.VERDICT, columns.TAU, columns.ACCEPTED, columns.SAME)


def _table(name: str, shown: Mapping[str, Any]) -> Table:
    rows = []
    for format, found in shown.items():
        for spec, drafter in found["drafters"].items():
            for depth, f in drafter["depths"].items():
                good = "as good" if int(depth) in drafter["as_good"] else ""
                best = "best" if int(depth) == drafter["best_depth"] else good
                rows.append(((format, spec, depth), f | {"best": best}))
    title = f"{name}: speed-up over plain decoding in the same format"
    return columns.table(title, ("format", "drafter", "depth"), rows, (*COLUMNS, columns.word("best", "best")))


def _charts(name: str, shown: Mapping[str, Any]) -> list[Chart]:
    """Speed-up over depth, a line a format, for each drafter."""
    charts = []
    for spec in dict.fromkeys(spec for found in shown.values() for spec in found["drafters"]):
        series = []
        for format, found in shown.items():
            depths = found["drafters"][spec]["depths"]
            series.append(measured(format, [int(depth) for depth in depths], [f["speedup"] for f in depths.values()]))
        title = f"{name}, {spec}: speed-up by format"
        charts.append(Chart("lines", title, "draft depth", "times", tuple(series), level=1.0, log_x=True))
    return charts
