"""Which static tree a drafter should have here: measured chances of its ranks, measured seconds, and the best of both.

A wide tree is drafted in every step and the target's answer met by it: how often the rank r below a node of depth d
stands where the node does. A forward of the target is timed by its rows, drafting by its levels. The best tree is that
of most tokens a second (trees/best.py), nothing at all included. It is found on every other prompt and asked of the
others, in turn with plain decoding and with the drafter as its spec has it: what is promised is held against the clock.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from forerun.core.draft import Tree
from forerun.core.errors import SpecError
from forerun.core.options import Spec
from forerun.core.protocols import StepTrace
from forerun.drafters.specs import own_options
from forerun.lab.arms import EngineArm
from forerun.lab.bench import AGAIN, PLAIN, Bench
from forerun.lab.costs.curve import Grid
from forerun.lab.costs.curve import measure as measure_curve
from forerun.lab.domains import data
from forerun.lab.paired import Asked, Samples, arm_figures, measure, noise, noise_figures, opening
from forerun.lab.run import Answers, Run
from forerun.trees.best import Best, best_tree
from forerun.trees.search import search
from forerun.trees.shape import Shape
from forerun.workloads.workload import Workload

ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 32)
CONTEXT = 256
REPEATS = 9
PRIOR = (0.5, 0.16, 0.08, 0.05, 0.04, 0.03, 0.02, 0.02)
"""What the probing tree is shaped by: chances that are somewhat like all drafters'."""
PROBE_NODES = 63
FEWEST = 12
"""Of a rank's trials, for its chance to be used."""


@dataclass(slots=True)
class Tally:
    """[depth][rank]: how often the node above stood and this one was judged, and how often it stood."""

    judged: list[list[int]] = field(default_factory=list)
    stood: list[list[int]] = field(default_factory=list)

    def hear(self, step: StepTrace) -> None:
        """The verdict on every tree of a step."""
        for tree, path in zip(step.draft.trees, step.verdict.paths, strict=True):
            self.count(tree, path)

    def count(self, tree: Tree, path: Sequence[int]) -> None:
        """One verdict: of every node that stood, which of its children did."""
        children = tree.children()
        for depth, node in enumerate((0, *path)):
            for rank, child in enumerate(children[node]):
                _at(self.judged, depth, rank, 1)
                _at(self.stood, depth, rank, int(depth < len(path) and path[depth] == child))

    def add(self, judged: Sequence[Sequence[int]], stood: Sequence[Sequence[int]]) -> None:
        """Those of another tally."""
        for mine, theirs in ((self.judged, judged), (self.stood, stood)):
            for depth, row in enumerate(theirs):
                for rank, count in enumerate(row):
                    _at(mine, depth, rank, count)

    def chances(self) -> list[list[float]]:
        """As a tree search takes them: what was tried too seldom is left out, and no rank is better than those before
        it, which only chance could have made it. SpecError where nothing was tried often enough."""
        found = []
        for judged, stood in zip(self.judged, self.stood, strict=True):
            row = [s / n for n, s in zip(judged, stood, strict=True) if n >= FEWEST]
            if not row:
                break
            found.append(list(accumulate(row, min)))
        if not found:
            raise SpecError("the drafter's guesses were judged too seldom to say which tree it needs: ask more prompts")
        return found


def _at(rows: list[list[int]], depth: int, rank: int, count: int) -> None:
    while len(rows) <= depth:
        rows.append([])
    rows[depth] += [0] * (rank + 1 - len(rows[depth]))
    rows[depth][rank] += count


def with_tree(spec: str, path: Path) -> str:
    """The spec with this static tree in the place of what it says of its shape; SpecError for a drafter without."""
    parsed = Spec.parse(spec)
    if "tree" not in own_options(parsed.name):
        raise SpecError(f"{parsed.name} has no static trees: name a head's drafter, as eagle3")
    own = {key: value for key, value in parsed.values.items() if key not in ("depth", "width", "nodes", "tree")}
    return f"{parsed.name}:{','.join(f'{key}={value}' for key, value in {**own, 'tree': path}.items())}"


def run_tree(
    bench: Bench, run: Run, spec: str, workloads: Sequence[Workload], asked: Asked, depth: int, rows: int
) -> tuple[dict[str, Any], Samples]:
    """The figures and what they come from; trees of at most `depth` levels and `rows` rows, root included."""
    with TemporaryDirectory(prefix="forerun-") as folder:
        tally = _probed(bench, run, spec, workloads, asked, depth, Path(folder))
        chances = tally.chances()
        target = {int(n): s for n, s in run.unit("target", lambda: _target_seconds(bench, rows)).items()}
        draft = run.unit("draft", lambda: _draft_seconds(bench, spec, workloads, asked, depth, Path(folder)))
        best = best_tree(chances, target, lambda levels: draft[levels - 1], depth)
        where = Path(folder) / "best.json"
        where.write_text(json.dumps(best.shape.paths))
        arms = [bench.plain(), bench.plain(AGAIN), bench.arm(spec)]
        if len(best.shape):
            arms.append(bench.arm(with_tree(spec, where), BEST))
        samples = measure(bench, run, arms, [_half(work, 1) for work in workloads], asked)
    told = {PLAIN, AGAIN, BEST} if len(best.shape) else {PLAIN, AGAIN}
    return {
        "drafter": spec,
        "chances": [[round(value, 4) for value in row] for row in chances],
        "judged": tally.judged,
        "target_ms": {str(n): round(1e3 * s, 4) for n, s in target.items()},
        "draft_ms": [round(1e3 * s, 4) for s in draft],
        "best": _best(best, target[1]),
        "workloads": {work.name: _workload(samples.of(work.name), spec, told) for work in workloads},
        "noise": noise_figures(samples),
        "left_out": list(samples.left_out),
    }, samples


BEST = "best tree"


def answers(bench: Bench, spec: str, workloads: Sequence[Workload], asked: Asked, depth: int, rows: int) -> Answers:
    """The five answers of such a run."""
    return Answers(
        stack=bench.stack,
        data=f"{data(workloads, asked)}; chances from every other prompt, speeds from the others",
        shape=f"{spec}, and the best static tree of at most {rows} rows and {depth} levels",
    )


def _half(work: Workload, which: int) -> Workload:
    """Every other prompt of a workload."""
    return replace(work, prompts=work.prompts[which::2])


def _probed(
    bench: Bench, run: Run, spec: str, workloads: Sequence[Workload], asked: Asked, depth: int, folder: Path
) -> Tally:
    """The tally of a wide tree over the first half of the prompts, first turns."""
    path = folder / "probe.json"
    path.write_text(json.dumps(search([PRIOR], PROBE_NODES, depth).paths))
    arm, whole = bench.arm(with_tree(spec, path), "probe"), Tally()
    for work in workloads:
        for prompt in run.track(_half(work, 0).prompts, f"chances, {work.name}"):
            asks = bench.tokens(opening(prompt))
            if len(asks) + int(asked.params["max_tokens"]) > bench.target.spec.max_len:
                continue
            whole.add(**run.unit(f"chances {work.name} {prompt.id}", partial(_counted, arm, asks, asked)))
    return whole


def _counted(arm: EngineArm, ids: Sequence[int], asked: Asked) -> dict[str, list[list[int]]]:
    """The tally of one answer."""
    tally = Tally()
    arm.answer([ids], asked.params, tally.hear)
    return {"judged": tally.judged, "stood": tally.stood}


def _target_seconds(bench: Bench, rows: int) -> dict[str, float]:
    """Seconds of a forward by its rows, fed as trees are."""
    counts = tuple(n for n in ROWS if n <= rows)
    grid = Grid(rows=counts, contexts=(CONTEXT,), repeats=REPEATS, feed="tree")
    curve = measure_curve(bench.target, grid).curve()
    return {str(point.rows): seconds for point, seconds in curve.seconds.items()}


def _levels(levels: int) -> Shape:
    """A tree of exactly so many levels, with about four nodes on each."""
    chain = Shape.chain(levels).paths
    return Shape.of(dict.fromkeys((*chain, *search([PRIOR], 3 * levels, levels).paths)))


def _draft_seconds(
    bench: Bench, spec: str, workloads: Sequence[Workload], asked: Asked, depth: int, folder: Path
) -> list[float]:
    """Seconds of drafting so many levels, of trees four nodes a level; never less than for fewer levels."""
    first = min((bench.tokens(opening(p)) for p in workloads[0].prompts), key=len)
    found = list[float]()
    for levels in range(1, depth + 1):
        path = folder / f"levels{levels}.json"
        path.write_text(json.dumps(_levels(levels).paths))
        sample = bench.arm(with_tree(spec, path), f"{levels} levels").answer([first], asked.params)
        found.append(sample.phases.get("draft", 0.0) / max(1, sample.steps))
    return list(accumulate(found, max))


def _best(best: Best, plain_s: float) -> dict[str, Any]:
    shape: Shape = best.shape
    return {
        "paths": [list(path) for path in shape.paths],
        "nodes": len(shape),
        "depth": shape.depth,
        "width": shape.width,
        "tokens": round(best.tokens, 4),
        "ms": round(1e3 * best.seconds, 4),
        "speedup": round(best.tokens_per_s * plain_s, 4),
    }


def _workload(samples: Samples, spec: str, told: set[str]) -> dict[str, Any]:
    floor = noise(samples) if samples.pairs(PLAIN, AGAIN) else None
    names = [name for name in (spec, BEST) if name == spec or name in told]
    return {
        "prompts": len({unit.prompt for unit in samples.units}),
        "noise": noise_figures(samples),
        "arms": {name: arm_figures(samples, name, floor=floor) for name in names},
    }
