"""Where a step's time goes, what the formulas make of it, and what speed costs.

Three kinds of arms answer each prompt in turn: plain decoding and every drafter as they are (speeds are theirs), the
same under a stopwatch that tells draws and text apart (only the split is theirs, and how much the watch slows is
reported), and every drafter at a few depths. T(rows) comes from the steps of all of them, by the rows they had.

A formula's terms are means over all steps, so what it predicts is held against the pooled speed-up (all seconds over
all tokens), never against the median over prompts, which has the interval and the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.core.errors import SpecError
from forerun.core.protocols import Drafter, Target
from forerun.lab import plans
from forerun.lab.bench import AGAIN, PLAIN, Bench
from forerun.lab.costs.formulas import (
    StepCost,
    advice,
    best_gamma,
    expected_by_position,
    expected_tokens,
    in_part,
    walltime_factor,
)
from forerun.lab.costs.stopwatch import PHASES, PhasedArm, summed
from forerun.lab.domains import data
from forerun.lab.paired import Asked, LogFor, Samples, arm_figures, measure, noise, noise_figures, rounded
from forerun.lab.run import Answers, Run
from forerun.lab.sample import Counts, Sample
from forerun.lab.stats import Interval, ratio, verdict
from forerun.lab.volume import Volume
from forerun.workloads.workload import Workload

FEWEST_STEPS = 3  # of a row count, for its forward's time to be used
Costs = Mapping[int, float]
"""Milliseconds of a forward by its rows."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A drafter under study: its spec, how deep that drafts, and its arms at other depths."""

    spec: str
    depth: int
    sweep: Mapping[int, str]
    identity: bool

    @property
    def watched(self) -> str:
        """Its arm under the stopwatch."""
        return watched(self.spec)


def watched(name: str) -> str:
    """The arm under the stopwatch."""
    return f"{name}, watched"


def run_phases(
    bench: Bench,
    run: Run,
    drafters: Sequence[str],
    workloads: Sequence[Workload],
    asked: Asked,
    depths: Sequence[int],
    log: LogFor | None = None,
) -> tuple[dict[str, Any], Samples]:
    """The figures and what they come from."""
    if min(depths) < 1 or len(set(depths)) < len(depths):
        raise SpecError(f"depths takes different whole numbers from 1 up, as 1,2,4; got {','.join(map(str, depths))}")
    made = {PLAIN: bench.plain(), AGAIN: bench.plain(AGAIN)}
    subjects = []
    for spec in drafters:
        made[spec] = bench.arm(spec)
        base = plans.base_plan(spec)
        sweep = {depth: plans.said(spec, plans.chain(base, depth)) for depth in sorted({*depths, base.depth})}
        if base.width == 1:
            sweep[base.depth] = spec
        made |= {name: bench.arm(name) for name in sweep.values() if name not in made}
        identity = same_weights(bench.target, made[spec].engine.parts.drafter)
        subjects.append(Subject(spec, base.depth, sweep, identity))
    arms = [PhasedArm(name, arm) for name, arm in made.items()]
    arms += [PhasedArm(watched(name), made[name], fine=True) for name in (PLAIN, *drafters)]
    samples = measure(bench, run, arms, workloads, asked, log=log)
    return {
        "workloads": {work.name: _workload(samples.of(work.name), subjects) for work in workloads},
        "noise": noise_figures(samples),
        "left_out": list(samples.left_out),
    }, samples


def answers(bench: Bench, drafters: Sequence[str], workloads: Sequence[Workload], asked: Asked) -> Answers:
    """The five answers of such a run."""
    return Answers(
        stack=bench.stack,
        data=data(workloads, asked),
        shape="; ".join(drafters),
    )


def same_weights(target: Target, drafter: Drafter) -> bool:
    """Whether a drafter runs a model with exactly the target's weights."""
    model = getattr(drafter, "target", None)
    return model is not None and model.spec.fingerprint == target.spec.fingerprint


def _workload(samples: Samples, subjects: Sequence[Subject]) -> dict[str, Any]:
    floor = noise(samples) if samples.pairs(PLAIN, AGAIN) else None
    costs = costs_by_rows(samples)
    return {
        "prompts": len({unit.prompt for unit in samples.units}),
        "noise": noise_figures(samples),
        "ms_by_rows": {str(rows): round(ms, 4) for rows, ms in costs.items()},
        "plain": {
            **arm_figures(samples, PLAIN, floor=floor),
            **by_step(samples.arm(PLAIN)),
            "split": split(samples.arm(watched(PLAIN))),
            "watch": _watch(samples, PLAIN, floor),
        },
        "drafters": {each.spec: drafter_figures(samples, each, costs, floor) for each in subjects},
    }


def costs_by_rows(samples: Samples) -> dict[int, float]:
    """T(rows) in milliseconds: the mean over all steps of so many rows, of any arm, for every other term of the formula
    is a mean over steps too. Row counts of fewer steps than three are left out."""
    spent: dict[int, float] = {}
    steps: dict[int, int] = {}
    for unit in samples.units:
        for sample in unit.samples.values():
            for rows, count, seconds in sample.by_rows:
                spent[rows] = spent.get(rows, 0.0) + seconds
                steps[rows] = steps.get(rows, 0) + count
    return {rows: 1e3 * spent[rows] / steps[rows] for rows in sorted(spent) if steps[rows] >= FEWEST_STEPS}


def split(samples: Sequence[Sample]) -> dict[str, Any] | None:
    """Milliseconds by phase, per token and per step, of watched samples; None where no answer had a second step."""
    seconds = summed(samples)
    tokens, steps = sum(s.tokens for s in samples), sum(s.steps for s in samples)
    if not tokens or not steps:
        return None
    return {
        "ms_per_token": {name: round(1e3 * seconds[name] / tokens, 5) for name in PHASES},
        "ms_per_step": {name: round(1e3 * seconds[name] / steps, 5) for name in PHASES},
        "step_ms": round(1e3 * sum(seconds.values()) / steps, 5),
        "tokens": tokens,
        "steps": steps,
    }


def by_step(samples: Sequence[Sample]) -> dict[str, float | None]:
    """Milliseconds of an arm's step, and those of it that are neither drafting nor the forward; of an arm as it is, for
    the stopwatch costs time just there. None where no answer had a second step."""
    steps, seconds = sum(s.steps for s in samples), summed(samples)
    outside = sum(value for name, value in seconds.items() if name not in ("draft", "score"))
    return {
        "step_ms": rounded(1e3 * sum(seconds.values()) / steps) if steps else None,
        "outside_ms_per_step": rounded(1e3 * outside / steps) if steps else None,
    }


def pooled_speedup(mine: Sequence[Sample], plain: Sequence[Sample]) -> float | None:
    """Seconds a token of plain decoding over those of an arm, each summed over all answers: what the formulas speak of,
    whose terms are means over all steps. The median over prompts is another figure. None where nothing was timed."""
    tokens, theirs = sum(s.tokens for s in mine), sum(s.tokens for s in plain)
    if not tokens or not theirs:
        return None
    return (sum(s.decode_s for s in plain) / theirs) / (sum(s.decode_s for s in mine) / tokens)


def _watch(samples: Samples, name: str, floor: Interval | None) -> dict[str, Any] | None:
    """What the stopwatch costs: the time under it over the time without."""
    pairs = samples.pairs(watched(name), name)
    if not pairs:
        return None
    slower = ratio(pairs)
    against = ratio([(b, a) for a, b in pairs])
    return {**slower.to_json(), "verdict": verdict(against, floor) if floor else None}


def drafter_figures(samples: Samples, each: Subject, costs: Costs, floor: Interval | None) -> dict[str, Any]:
    """Everything that is said of one drafter on one workload; `costs` is the run's T(rows)."""
    found = arm_figures(samples, each.spec, floor=floor)
    mine = samples.arm(each.spec)
    counts, cost, tau, speed = Counts.of(mine), step_cost(mine, costs), step_tau(mine), found["speedup"]
    said = advice(found["verdict"], speed["value"], tau, cost) if cost and tau and speed and floor else None
    return {
        **found,
        **by_step(mine),
        "split": split(samples.arm(each.watched)),
        "watch": _watch(samples, each.spec, floor),
        "volume": Volume.of(counts, each.identity).to_json(),
        "prediction": _prediction(cost, tau, pooled_speedup(mine, samples.arm(PLAIN))),
        "leviathan": _leviathan(samples, each, costs, counts, floor),
        "price": price(mine, samples.arm(PLAIN)),
        "advice": said if counts.drafted else "nothing was drafted: look at the texts, or at another drafter",
    }


def step_tau(samples: Sequence[Sample]) -> float | None:
    """Tokens a step over the steps that were timed; `tau` counts the first step, which read the prompt, too."""
    steps = sum(s.steps for s in samples)
    return sum(s.tokens for s in samples) / steps if steps else None


def step_cost(samples: Sequence[Sample], costs: Costs) -> StepCost | None:
    """An arm's mean step in milliseconds. Its forward is what the run's T(rows) says of the rows that it fed, its own
    time only where rows are too rare for that; None where nothing was timed or plain's forward is not known."""
    steps = sum(count for s in samples for _, count, _ in s.by_rows)
    if not steps or 1 not in costs:
        return None
    verify = sum(
        costs[rows] * count if rows in costs else 1e3 * seconds for s in samples for rows, count, seconds in s.by_rows
    )
    phases = summed(samples)
    rest = sum(seconds for name, seconds in phases.items() if name not in ("draft", "score"))
    return StepCost(costs[1], verify / steps, 1e3 * phases.get("draft", 0.0) / steps, 1e3 * rest / steps)


def _prediction(cost: StepCost | None, tau: float | None, measured: float | None) -> dict[str, Any] | None:
    """The formula's terms in milliseconds, its speed-up, and by how many percent that is off the pooled `measured`."""
    if cost is None or tau is None or measured is None:
        return None
    predicted = cost.speedup(tau)
    return {
        "tau": rounded(tau),
        "t1_ms": rounded(cost.plain),
        "t_verify_ms": rounded(cost.verify),
        "draft_ms": rounded(cost.draft),
        "rest_ms": rounded(cost.rest),
        "draft_share": rounded(cost.draft_share),
        "speedup": rounded(predicted),
        "measured": rounded(measured),
        "error_percent": rounded(100 * (predicted / measured - 1), 3),
    }


def _leviathan(
    samples: Samples, each: Subject, costs: Costs, counts: Counts, floor: Interval | None
) -> dict[str, Any] | None:
    """The paper's model of this drafter, from its alpha, its draft cost and T(rows), beside what was measured.

    The paper drafts in every step; lookups do not. So its tokens and its forwards are taken for the `drafting_share` of
    the steps, and those of plain decoding for the others; the draft cost is a mean over all steps already.
    """
    cost = step_cost(samples.arm(each.spec), costs)
    if cost is None or not sum(counts.tried_at):
        return None
    share = counts.tried_at[0] / counts.passes
    alpha, draft = sum(counts.stood_at) / sum(counts.tried_at), cost.draft / each.depth / cost.plain
    verify = {rows: ms / cost.plain for rows, ms in costs.items()}
    known = [depth for depth in each.sweep if depth + 1 in verify]
    measured = {depth: figures_at(samples, name, floor) for depth, name in each.sweep.items()}
    return {
        "alpha": rounded(alpha),
        "draft_cost": rounded(draft),
        "depth": each.depth,
        "drafting_share": rounded(share),
        "expected_tokens": rounded(in_part(expected_tokens(alpha, each.depth), share)),
        "expected_by_position": rounded(in_part(expected_by_position(counts.by_position[: each.depth]), share)),
        "measured_tau": rounded(counts.tau),
        "depths": [
            {
                "depth": depth,
                "verify_cost": rounded(verify.get(depth + 1)),
                "predicted": rounded(walltime_factor(alpha, depth, draft, verify[depth + 1], share))
                if depth in known
                else None,
                **measured[depth],
            }
            for depth in each.sweep
        ],
        "best": _best(samples, each, best_gamma(alpha, draft, verify.__getitem__, known, share), floor),
    }


def figures_at(samples: Samples, name: str, floor: Interval | None) -> dict[str, Any]:
    """Tau and speed-up of one depth, and the pooled speed-up that a prediction is held against."""
    found = arm_figures(samples, name, floor=floor)
    measured = pooled_speedup(samples.arm(name), samples.arm(PLAIN))
    return {"measured": rounded(measured), **{key: found[key] for key in ("tau", "speedup", "verdict")}}


def _best(samples: Samples, each: Subject, predicted: int, floor: Interval | None) -> dict[str, Any] | None:
    """The depth that the formula chooses and the one that was fastest, all answers pooled (0 is plain decoding), and
    what the formula's choice loses: its time over the fastest one's, by the median prompt. The fastest of several is
    so partly by luck: that overstates it."""
    names, plain = {0: PLAIN, **each.sweep}, samples.arm(PLAIN)
    known = {depth: pooled_speedup(samples.arm(name), plain) for depth, name in names.items()}
    speeds = {depth: speed for depth, speed in known.items() if speed is not None}
    if predicted not in speeds:
        return None
    fastest = max(speeds, key=lambda depth: speeds[depth])
    pairs = samples.pairs(names[predicted], names[fastest])
    lost = ratio(pairs) if pairs else None
    return {
        "predicted": predicted,
        "measured": fastest,
        "loss": lost.to_json() if lost else None,
        "verdict": verdict(lost, floor) if lost and floor else None,
    }


def price(mine: Sequence[Sample], plain: Sequence[Sample]) -> dict[str, Any] | None:
    """What speed costs: rows computed a token, those thrown away, processor milliseconds a token beside plain's."""
    tokens, plain_tokens = sum(s.tokens for s in mine), sum(s.tokens for s in plain)
    if not tokens or not plain_tokens:
        return None
    rows = sum(s.rows for s in mine)
    cpu, plain_cpu = sum(s.cpu_s for s in mine) / tokens, sum(s.cpu_s for s in plain) / plain_tokens
    return {
        "rows_per_token": rounded(rows / tokens),
        "thrown_away_per_token": rounded((rows - tokens) / tokens),
        "cpu_ms_per_token": rounded(1e3 * cpu),
        "plain_cpu_ms_per_token": rounded(1e3 * plain_cpu),
        "cpu_ratio": rounded(cpu / plain_cpu) if plain_cpu else None,
    }
