"""Which draft shape pays: depth, width and node budget, each swept alone, and chains against trees.

All shapes of a drafter are arms over one drafter and answer each prompt in turn with plain decoding. The best of many
arms looks better than it is, for chance helped it win: so it is chosen on one half of the prompts, and what it gains is
told of the other half.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from forerun.core.errors import SpecError
from forerun.core.plan import Plan
from forerun.lab import plans
from forerun.lab.bench import AGAIN, PLAIN, Bench
from forerun.lab.costs.probe import probe
from forerun.lab.domains import data
from forerun.lab.paired import Asked, LogFor, Samples, arm_figures, measure, noise, noise_figures
from forerun.lab.plans import chain, said, tree
from forerun.lab.run import Answers, Run
from forerun.lab.sample import Counts
from forerun.lab.stats import Interval, ratio, verdict
from forerun.workloads.workload import Workload

WIDE = 3  # children of a node in trees of a drafter whose spec says chains
AT_DEPTH = 4  # depth of the sweep over widths: 15 nodes branch there before they are used up
SETTLED = ("no difference", "slower")  # verdicts of what does not pay; too few prompts is none


@dataclass(frozen=True, slots=True)
class Grid:
    """What is swept; each takes different whole numbers from 1 up."""

    depths: tuple[int, ...]
    widths: tuple[int, ...]
    nodes: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("depths", "widths", "nodes"):
            values = getattr(self, name)
            if not values or min(values) < 1 or len(set(values)) < len(values):
                got = ",".join(map(str, values))
                raise SpecError(f"{name} takes different whole numbers from 1 up, as 1,2,4; got {got!r}")
            object.__setattr__(self, name, tuple(sorted(values)))


@dataclass(frozen=True, slots=True)
class Pair:
    """A chain and a tree with something in common."""

    equal: str
    """What is: `depth` (and so, pass for pass, how far either may look) or `rows` (what verifying may cost)."""
    chain: str
    tree: str
    plan: Plan
    """The tree's."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """The plans of one drafter that are measured, by sweep."""

    spec: str
    default: Plan
    depth: tuple[Plan, ...]
    width: tuple[Plan, ...] = ()
    nodes: tuple[Plan, ...] = ()
    pairs: tuple[Pair, ...] = ()
    auto: Plan | None = None

    @property
    def by_arm(self) -> dict[str, Plan]:
        """Every plan once, the default first, by the spec that says it."""
        extra = tuple(plans.chain(pair.plan, pair.plan.nodes) for pair in self.pairs if pair.equal == "rows")
        auto = (self.auto,) if self.auto else ()
        every = (self.default, *self.depth, *self.width, *self.nodes, *extra, *auto)
        return {self.name(plan): plan for plan in every}

    def name(self, plan: Plan) -> str:
        """The arm of a plan."""
        return said(self.spec, plan)


def shapes(spec: str, grid: Grid, auto_nodes: int | None) -> Shapes:
    """What to measure of a drafter; only what it heeds is swept."""
    base, heeds = plans.base_plan(spec), plans.heeds(spec)
    depth = tuple(dict.fromkeys(plans.normal(replace(base, depth=value)) for value in grid.depths))
    if "width" not in heeds or "nodes" not in heeds:
        return Shapes(spec, base, depth)
    budget = base.nodes if base.width > 1 else plans.NODES
    wide = base.width if base.width > 1 else WIDE
    at = min(base.depth, AT_DEPTH)
    width = tuple(tree(base, at, value, budget) for value in grid.widths)
    nodes = tuple(tree(base, base.depth, wide, value) for value in grid.nodes)
    pairs = [Pair("depth", said(spec, chain(base, at)), said(spec, plan), plan) for plan in width if plan.width > 1]
    pairs += [
        Pair("rows", said(spec, chain(base, plan.nodes)), said(spec, plan), plan)
        for plan in nodes
        if 1 < plan.nodes <= max(grid.depths)
    ]
    auto = tree(base, base.depth, wide, auto_nodes) if auto_nodes else None
    return Shapes(spec, base, depth, (chain(base, at), *(p for p in width if p.width > 1)), nodes, tuple(pairs), auto)


def run_shape(
    bench: Bench,
    run: Run,
    drafters: Sequence[str],
    workloads: Sequence[Workload],
    asked: Asked,
    grid: Grid,
    log: LogFor | None = None,
) -> tuple[dict[str, Any], Samples]:
    """The figures and what they come from. Arms are plain decoding twice and every shape of every drafter."""
    for spec in drafters:
        shapes(spec, grid, None)  # refused before the probe takes its time
    found = run.unit("probe", lambda: probed.to_json() if (probed := probe(bench.target)) else None)
    swept = [shapes(spec, grid, found["nodes"] if found else None) for spec in drafters]
    specs = dict.fromkeys(name for each in swept for name in each.by_arm)
    arms = [bench.plain(), bench.plain(AGAIN), *(bench.arm(spec) for spec in specs)]
    samples = measure(bench, run, arms, workloads, asked, log=log)
    return {
        "workloads": {work.name: _workload(samples.of(work.name), swept, asked.seed) for work in workloads},
        "noise": noise_figures(samples),
        "probe": found,
        "left_out": list(samples.left_out),
    }, samples


def answers(bench: Bench, drafters: Sequence[str], workloads: Sequence[Workload], asked: Asked, grid: Grid) -> Answers:
    """The five answers of such a run."""
    swept = [f"{name} {','.join(map(str, getattr(grid, name)))}" for name in ("depths", "widths", "nodes")]
    return Answers(
        stack=bench.stack,
        data=data(workloads, asked),
        shape=f"{'; '.join(drafters)}: {', '.join(swept)}, and the probed node count",
    )


def _workload(samples: Samples, swept: Sequence[Shapes], seed: int) -> dict[str, Any]:
    floor = noise(samples) if samples.pairs(PLAIN, AGAIN) else None
    return {
        "prompts": len({unit.prompt for unit in samples.units}),
        "noise": noise_figures(samples),
        "drafters": {each.spec: _drafter(samples, each, floor, seed) for each in swept},
    }


def _drafter(samples: Samples, swept: Shapes, floor: Interval | None, seed: int) -> dict[str, Any]:
    known = {name: _point(samples, name, plan, floor) for name, plan in swept.by_arm.items()}

    def of(sweep: Sequence[Plan]) -> list[dict[str, Any]]:
        return [known[swept.name(plan)] for plan in sweep]

    return {
        "default": of([swept.default])[0],
        "depth": of(swept.depth),
        "width": of(swept.width),
        "nodes": of(swept.nodes),
        "pairs": [_pair(samples, pair, floor) for pair in swept.pairs],
        "auto_nodes": of([swept.auto])[0] if swept.auto else None,
        "best": best(samples, swept, floor, seed),
        "depth_pays": depth_pays([known[swept.name(plan)]["verdict"] for plan in swept.depth]),
        "stops_paying_at": stops_paying_at(samples, [(p.depth, swept.name(p)) for p in swept.depth], floor),
    }


def _point(samples: Samples, name: str, plan: Plan, floor: Interval | None) -> dict[str, Any]:
    return {
        "spec": name,
        **plans.to_json(plan),
        "rows_per_pass": rows_per_pass(samples, name),
        **arm_figures(samples, name, floor=floor),
    }


def rows_per_pass(samples: Samples, name: str) -> float | None:
    """Rows of a forward on average; None where no answer had a second step. A plan is a limit: drafts are smaller."""
    mine = samples.arm(name)
    steps = sum(sample.steps for sample in mine)
    return round(sum(sample.rows for sample in mine) / steps, 3) if steps else None


def _pair(samples: Samples, pair: Pair, floor: Interval | None) -> dict[str, Any]:
    """What branching adds: to the tokens of a pass, which is what equal numbers of passes give, and to the speed."""
    taus = tau_pairs(samples, pair.tree, pair.chain)
    times = samples.pairs(pair.chain, pair.tree)
    speed = ratio(times) if times else None
    return {
        "equal": pair.equal,
        "chain": pair.chain,
        "tree": pair.tree,
        "chain_rows_per_pass": rows_per_pass(samples, pair.chain),
        "tree_rows_per_pass": rows_per_pass(samples, pair.tree),
        "tau": ratio(taus).to_json() if taus else None,
        "speed": speed.to_json() if speed else None,
        "verdict": verdict(speed, floor) if speed and floor else None,
    }


def tau_pairs(samples: Samples, first: str, second: str) -> list[tuple[float, float]]:
    """For each prompt the tokens per pass of two arms, turns and rounds pooled."""
    prompts = dict.fromkeys((unit.workload, unit.prompt) for unit in samples.units)
    pairs = []
    for prompt in prompts:
        units = [unit.samples for unit in samples.units if (unit.workload, unit.prompt) == prompt]
        taus = [Counts.of([found[name] for found in units]).tau for name in (first, second)]
        if taus[0] and taus[1]:
            pairs.append((taus[0], taus[1]))
    return pairs


def depth_pays(verdicts: Sequence[str | None]) -> bool | None:
    """Whether any depth is faster than plain decoding beyond the noise; None where that cannot be told of all."""
    if "faster" in verdicts:
        return True
    return False if all(said in SETTLED for said in verdicts) else None


def stops_paying_at(samples: Samples, depths: Sequence[tuple[int, str]], floor: Interval | None) -> int | None:
    """The first of the ascending `depths` (with their arms) than which no deeper one is faster beyond the noise; None
    if that is only the deepest, or if the prompts are too few, or their answers too short, to say."""
    for i, (depth, name) in enumerate(depths[:-1] if floor else ()):
        deeper = [samples.pairs(name, other) for _, other in depths[i + 1 :]]
        if floor and all(pairs and verdict(ratio(pairs), floor) in SETTLED for pairs in deeper):
            return depth
    return None


def best(samples: Samples, swept: Shapes, floor: Interval | None, seed: int) -> dict[str, Any] | None:
    """The fastest shape on one half of the prompts, and its speed on the other; None below two prompts."""
    choosing, telling = halves(samples, seed)
    speeds = {name: _speed(choosing, name) for name in swept.by_arm}
    known = {name: speed for name, speed in speeds.items() if speed is not None}
    chosen = max(known, key=lambda name: known[name], default=None)
    if chosen is None or not telling.pairs(PLAIN, chosen):
        return None
    speed, times = ratio(telling.pairs(PLAIN, chosen)), telling.pairs(swept.name(swept.default), chosen)
    over = ratio(times) if times else None
    return {
        "plan": plans.to_json(swept.by_arm[chosen]),
        "spec": chosen,
        "chosen_on": len({unit.prompt for unit in choosing.units}),
        "told_of": len({unit.prompt for unit in telling.units}),
        "speedup": speed.to_json(),
        "verdict": verdict(speed, floor) if floor else None,
        "over_default": over.to_json() if over else None,
        "over_default_verdict": verdict(over, floor) if over and floor else None,
        "speedup_where_chosen": round(known[chosen], 6),
    }


def halves(samples: Samples, seed: int) -> tuple[Samples, Samples]:
    """Two sets of prompts, drawn: the smaller to choose by, the other to tell of."""
    prompts = list(dict.fromkeys((unit.workload, unit.prompt) for unit in samples.units))
    order = random.Random(f"{seed}/halves").sample(prompts, len(prompts))
    choose = set(order[: len(order) // 2])
    parts: tuple[list[Any], list[Any]] = ([], [])
    for unit in samples.units:
        parts[(unit.workload, unit.prompt) not in choose].append(unit)
    return Samples(parts[0]), Samples(parts[1])


def _speed(samples: Samples, name: str) -> float | None:
    pairs = samples.pairs(PLAIN, name)
    return median(a / b for a, b in pairs) if pairs else None
