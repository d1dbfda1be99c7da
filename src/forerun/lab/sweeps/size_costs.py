"""What a bigger target would gain, from what its forwards cost and an acceptance that somebody gives.

Random weights have a size and no tokenizer: they can be timed, and answer nothing. T(1), the forward over a draft and
the drafter's own forward are measured in turn, block by block; tokens a step follow from the acceptance alone (chains
whose tokens stand independently of one another), so a prediction is only as true as that. Drafters that run no model
are counted as costing nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, cast

from forerun.assemble import draft_target, shallow
from forerun.core.errors import SpecError
from forerun.core.options import Spec
from forerun.core.protocols import Target
from forerun.costs.curve import Point
from forerun.drafters.specs import split_plan
from forerun.lab import columns
from forerun.lab.bench import Bench
from forerun.lab.costs.curve import Grid, measure
from forerun.lab.costs.formulas import expected_tokens, walltime_factor
from forerun.lab.paired import rounded
from forerun.lab.run import Run
from forerun.lab.shapes import is_random
from forerun.lab.stats import ratio
from forerun.lab.subject import random_target
from forerun.lab.sweeps.kin import Candidate, conclusion, facts, said
from forerun.lab.sweeps.passes import Loader
from forerun.lab.views import Chart, Note, View, measured, number


@dataclass(frozen=True, slots=True)
class Timing:
    """How forwards are timed."""

    context: int = 256
    blocks: int = 5
    """Each times the target and then the drafter; ratios are taken within a block."""
    repeats: int = 5
    """Rounds of a block."""

    def __post_init__(self) -> None:
        for name in ("context", "blocks", "repeats"):
            if getattr(self, name) < 1:
                raise SpecError(f"{name} must be a whole number from 1 up, got {getattr(self, name)}")


def room(candidates: Sequence[Candidate], timing: Timing) -> list[Candidate]:
    """The candidates with memory for what is timed. SpecError for a plan that is no chain: of a tree, acceptance alone
    says nothing."""
    found = []
    for candidate in candidates:
        for spec in candidate.drafters:
            plan, _, _ = split_plan(Spec.parse(spec))
            if plan.width != 1 or not plan:
                raise SpecError(f"predictions are for chains of drafts, got {spec!r}: give depth, and no width")
        grid = Grid((_deepest(candidate) + 1,), contexts=(timing.context,))
        found.append(replace(candidate, config=replace(candidate.config, kv_tokens=2 * grid.kv_tokens)))
    return found


def run_costs(
    loader: Loader, run: Run, candidates: Sequence[Candidate], acceptance: float, timing: Timing
) -> tuple[dict[str, Any], list[dict[str, object]]]:
    """The figures and the seconds they come from."""
    targets: list[dict[str, Any]] = []
    samples: list[dict[str, object]] = []
    for index, candidate in enumerate(candidates):
        bench = loader.open(candidate.config)
        drafts = {}
        for spec in candidate.drafters:
            gamma = split_plan(Spec.parse(spec))[0].depth
            blocks = _blocks(run, bench, spec, gamma, timing, f"{index}/{candidate.model}/{spec}")
            drafts[spec] = _prediction(blocks, gamma, acceptance)
            samples += [
                {"model": bench.target.spec.name, "drafter": spec, "block": i, **b} for i, b in enumerate(blocks)
            ]
        targets.append({**facts(bench), "drafters": drafts})
    figures = {
        "acceptance": acceptance,
        "context": timing.context,
        "targets": targets,
        "differ": conclusion(targets),
    }
    return figures, samples


def _deepest(candidate: Candidate) -> int:
    return max(split_plan(Spec.parse(spec))[0].depth for spec in candidate.drafters)


def _blocks(run: Run, bench: Bench, spec: str, gamma: int, timing: Timing, key: str) -> list[dict[str, float]]:
    """Median seconds of each block: one row, a whole draft, the drafter's one row (0 if it runs no model)."""
    draft = draft_model(bench, spec)
    grid = Grid((1, gamma + 1), contexts=(timing.context,), repeats=timing.repeats)
    one = replace(grid, rows=(1,))

    def block(number: int) -> dict[str, float]:
        seconds = measure(bench.target, grid, seed=number).seconds
        own = measure(draft, one, seed=number).seconds if draft is not None else {}
        return {
            "plain_s": median(seconds[Point(1, 1, timing.context)]),
            "verify_s": median(seconds[Point(gamma + 1, 1, timing.context)]),
            "draft_s": median(own[Point(1, 1, timing.context)]) if own else 0.0,
        }

    blocks = run.track(range(timing.blocks), key)
    return [cast(dict[str, float], run.unit(f"{key}/{i}", partial(block, i))) for i in blocks]


def draft_model(bench: Bench, spec: str) -> Target | None:
    """The model that a drafter runs, None if it runs none; SpecError for a draft model of another vocabulary."""
    parsed = Spec.parse(spec)
    values = split_plan(parsed)[2]
    if parsed.name == "skip":
        layers = values.get("layers")
        return shallow(bench.target, None if layers is None else int(str(layers)))
    if parsed.name != "model":
        return None
    path = str(values.get("path", ""))
    if not is_random(path):
        weights = str(values.get("weights", "auto"))
        return draft_target(path, weights, bench.target, bench.base.words, bench.base.config)[0]
    draft = random_target(replace(bench.base.config, model=path))
    if draft.spec.vocab_size != bench.target.spec.vocab_size:
        raise SpecError(
            f"{path} has {draft.spec.vocab_size} tokens, {bench.target.spec.name} has {bench.target.spec.vocab_size}: "
            "a drafter needs its target's vocabulary"
        )
    return draft


def _prediction(blocks: Sequence[Mapping[str, float]], gamma: int, acceptance: float) -> dict[str, Any]:
    """Costs in milliseconds, and the speed-up that follows from them, with its interval over blocks."""
    factors = []
    for b in blocks:
        plain = b["plain_s"]
        factors.append((walltime_factor(acceptance, gamma, b["draft_s"] / plain, b["verify_s"] / plain), 1.0))
    times = {key: median(block[key] for block in blocks) for key in ("plain_s", "verify_s", "draft_s")}
    return {
        "depth": gamma,
        "t1_ms": rounded(1e3 * times["plain_s"]),
        "verify_ms": rounded(1e3 * times["verify_s"]),
        "draft_ms_per_guess": rounded(1e3 * times["draft_s"]),
        "tau": rounded(expected_tokens(acceptance, gamma)),
        "speedup": ratio(factors).to_json(),
    }


LEADS = ("target", "MB read", "T(1) ms", "drafter")
COLUMNS = (
    columns.word("depth", "depth"), columns.of("T(depth+1) ms", "verify_ms"),
    columns.of("draft ms/guess", "draft_ms_per_guess", 3), columns.TAU, columns.ratio("predicted", "speedup"),
)  # fmt: skip


def view(figures: Mapping[str, Any]) -> list[View]:
    """A table, a chart, and what the prediction stands on."""
    rows = [
        ((target["model"], number(target["weight_bytes"] / 1e6, 1), number(f["t1_ms"]), spec), f)
        for target in figures["targets"]
        for spec, f in target["drafters"].items()
    ]
    series = []
    for spec in dict.fromkeys(spec for target in figures["targets"] for spec in target["drafters"]):
        own = [target for target in figures["targets"] if spec in target["drafters"]]
        series.append(measured(spec, [t["model"] for t in own], [t["drafters"][spec]["speedup"] for t in own]))
    given = f"{figures['acceptance']:g}"
    title = f"predicted speed-up if each guess stands with chance {given}"
    return [
        columns.table(f"{title}, context {figures['context']}", LEADS, rows, COLUMNS),
        Chart("bars", title, "", "times", tuple(series), level=1.0),
        Note(f"forwards were timed; the acceptance of {given} was given, not measured: no text was written"),
        Note(said(figures["differ"])),
    ]
