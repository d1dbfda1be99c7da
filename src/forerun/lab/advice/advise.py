"""Speculate or not, with which drafter and shape: the answer for one's own prompts, in a minute.

Plain decoding answers some prompts; every drafter and shape is led along these answers without the target (`replay`),
and a short cost curve says what a forward takes by rows. So a whole grid is ranked for the price of drafting. The few
that look best are then measured live beside plain decoding, which alone decides; what is not faster than the machine's
noise is not recommended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

from forerun.assemble import split_plan
from forerun.core.errors import SpecError
from forerun.core.options import Spec
from forerun.core.plan import Plan
from forerun.drafters.names import drafter_entry
from forerun.lab.advice.elsewhere import llama_cpp, vllm
from forerun.lab.advice.replay import Known, can_replay
from forerun.lab.advice.replay import replay as replayed
from forerun.lab.arms import Arm
from forerun.lab.bench import AGAIN, PLAIN, Bench
from forerun.lab.costs.curve import Grid
from forerun.lab.costs.curve import measure as measure_curve
from forerun.lab.domains import data, noise_note
from forerun.lab.paired import Asked, Samples, Unit, arm_figures, measure, noise, noise_figures, rounded, user
from forerun.lab.run import Answers, Run
from forerun.lab.sample import Sample
from forerun.lab.stats import total_ratio
from forerun.lab.views import Chart, Note, Series, Table, View, interval, number
from forerun.workloads.workload import Workload

DEPTHS = (1, 2, 3, 4, 6, 8, 12, 15)
TREES = ((4, 2, 7), (4, 3, 15), (8, 2, 15), (8, 3, 15))  # depth, width, nodes
ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
SCOUTS = 3  # prompts that all candidates are tried on, before the poor ones are dropped
NEAR = 0.9  # part of the best one's speed that a candidate needs to stay
FINALISTS = 3
SHARES = {"plain": 0.25, "replay": 0.3}  # of the time; what is left is for measuring live
FEWEST = 4  # prompts


@dataclass(frozen=True, slots=True)
class Candidate:
    """A drafter and a shape: `spec` is what an engine would be given."""

    spec: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a step's parts."""

    by_rows: Mapping[int, float]
    rest: float

    def forward(self, rows: int) -> float:
        """Between measured rows along a straight line, beyond them along the last one."""
        known = sorted(self.by_rows)
        if rows in self.by_rows:
            return self.by_rows[rows]
        high = next((r for r in known if r > rows), known[-1])
        low = max((r for r in known if r < high), default=known[0])
        slope = (self.by_rows[high] - self.by_rows[low]) / max(1, high - low)
        return self.by_rows[low] + slope * (rows - low)


def candidates(drafters: Sequence[str]) -> list[Candidate]:
    """The grid: for each drafter every depth as a chain, and where it grows trees some of these. What a spec says of
    the shape itself (`ngram:depth=5`) is taken as it is."""
    found: dict[str, Candidate] = {}
    for text in drafters:
        spec = Spec.parse(text)
        plan, _, own = split_plan(spec)
        heeds = drafter_entry(spec.name).heeds
        shaped = set(spec.values) & {"depth", "nodes", "width"}
        plans = [plan] if shaped or "depth" not in heeds else [replace(plan, depth=depth) for depth in DEPTHS]
        if not shaped and "width" in heeds:
            plans += [replace(plan, depth=d, width=w, nodes=n) for d, w, n in TREES]
        for each in plans:
            named = spelled(spec.name, own, each, Plan(drafter_entry(spec.name).depth))
            found.setdefault(named, Candidate(named, each))
    return list(found.values())


def spelled(name: str, own: Mapping[str, object], plan: Plan, default: Plan) -> str:
    """A drafter's spec with the fields of the plan that are not its default."""
    fields = {field: getattr(plan, field) for field in ("depth", "width", "nodes", "confidence")}
    values = {**own, **{key: value for key, value in fields.items() if value != getattr(default, key)}}
    return f"{name}:{','.join(f'{key}={value}' for key, value in values.items())}" if values else name


class Advisor:
    """One workload's way from prompts to a recommendation, within `seconds`."""

    def __init__(self, bench: Bench, run: Run, work: Workload, asked: Asked, seconds: float) -> None:
        self._bench, self._run, self._work, self._asked = bench, run, work, asked
        self._seconds = seconds
        self._began = perf_counter()
        self.spent: dict[str, float] = {}

    def advise(self, drafters: Sequence[str]) -> tuple[dict[str, Any], Samples]:
        """The figures of this workload, and the live samples behind them."""
        known, plain = self._plain()
        costs = self._costs(known, plain)
        ranked = self._rank(candidates(drafters), known, costs)
        finalists = [entry["spec"] for entry in ranked[:FINALISTS] if entry["speedup"] > 1.0]
        live = [spec for spec in drafters if not self._can_replay(spec)]
        samples = self._live([*finalists, *live])
        floor = noise(samples)
        arms = {name: arm_figures(samples, name, floor=floor) for name in [PLAIN, *finalists, *live]}
        found = {
            "prompts": len(known),
            "ms_by_rows": {str(rows): rounded(1e3 * s) for rows, s in costs.by_rows.items()},
            "rest_ms": rounded(1e3 * costs.rest),
            "candidates": ranked,
            "noise": noise_figures(samples),
            "arms": arms,
            "recommend": recommend(arms, self._bench),
            "seconds": {name: round(value, 2) for name, value in self.spent.items()},
        }
        return found, samples

    def _plain(self) -> tuple[list[Known], list[Sample]]:
        """Answers of plain decoding, as many prompts as the time allows."""
        arm, known, samples = self._bench.plain(), list[Known](), list[Sample]()
        start, params = perf_counter(), dict(self._asked.params)
        for index, prompt in enumerate(self._work.prompts):
            ids = self._bench.tokens(user(prompt.turns[:1]))
            if len(ids) + params["max_tokens"] > self._bench.target.spec.max_len:
                continue
            mine = {**params, "seed": params["seed"] + index} if params.get("seed") is not None else params

            def ask(ids: list[int] = ids, mine: dict[str, Any] = mine) -> dict[str, Any]:
                sample = arm.answer([ids], mine)
                return {"ids": list(sample.ids[0]), "sample": sample.to_json()}

            record = self._run.unit(f"{self._work.name}/plain/{prompt.id}", ask)
            if len(record["ids"]) > 1:
                known.append(Known(tuple(ids), tuple(record["ids"]), mine))
                samples.append(Sample.from_json(record["sample"]))
            if len(known) >= FEWEST and perf_counter() - start > SHARES["plain"] * self._seconds:
                break
        if not known:
            raise SpecError(f"no prompt of {self._work.name!r} has an answer of two tokens that fits the context")
        self.spent["plain"] = perf_counter() - start
        return known, samples

    def _costs(self, known: Sequence[Known], plain: Sequence[Sample]) -> Costs:
        """A short cost curve at the context that these answers have."""
        start = perf_counter()
        lengths = [len(k.prompt) + len(k.answer) // 2 for k in known]
        context = min(int(median(lengths)), self._bench.target.spec.max_len - max(ROWS))
        grid = Grid(rows=ROWS, contexts=(context,), repeats=9)

        def ask() -> dict[str, float]:
            curve = measure_curve(self._bench.target, grid).curve()
            return {str(rows): seconds for rows, seconds in curve.by_rows(1, context).items()}

        by_rows = {int(rows): s for rows, s in self._run.unit(f"{self._work.name}/curve", ask).items()}
        steps = sum(s.steps for s in plain) or 1
        rest = sum(s.decode_s - s.phases.get("score", 0.0) for s in plain) / steps
        self.spent["curve"] = perf_counter() - start
        return Costs(by_rows, rest)

    def _rank(self, grid: Sequence[Candidate], known: Sequence[Known], costs: Costs) -> list[dict[str, Any]]:
        """Candidates that can be replayed, the fastest first: all on a few prompts, those near the best on the rest."""
        start, deadline = perf_counter(), SHARES["replay"] * self._seconds
        grid = [c for c in grid if self._can_replay(c.spec)]
        scouts = known[:: max(1, len(known) // SCOUTS)][:SCOUTS]
        first = {c: self._predict(c, scouts, costs) for c in grid}
        best = max((entry["speedup"] for entry in first.values()), default=1.0)
        near = sorted((c for c in grid if first[c]["speedup"] >= NEAR * best), key=lambda c: -first[c]["speedup"])
        final: dict[Candidate, dict[str, Any]] = {}
        for candidate in near:
            late = perf_counter() - start > deadline and len(final) >= FINALISTS
            final[candidate] = first[candidate] if late else self._predict(candidate, known, costs)
        rest = [entry for c, entry in first.items() if c not in final]
        self.spent["replay"] = perf_counter() - start
        return sorted(final.values(), key=lambda e: -e["speedup"]) + sorted(rest, key=lambda e: -e["speedup"])

    def _can_replay(self, spec: str) -> bool:
        return can_replay(self._bench.arm(spec).engine.parts.drafter)

    def _predict(self, candidate: Candidate, known: Sequence[Known], costs: Costs) -> dict[str, Any]:
        """What a candidate would make of these answers, as figures."""
        base, target = self._bench.base, self._bench.target
        drafter = self._bench.arm(candidate.spec).engine.parts.drafter

        def ask() -> dict[str, Any]:
            pairs, tokens, steps, draft_s, rows = [], 0, 0, 0.0, 0
            for answer in known:
                stops = frozenset() if answer.params.get("ignore_eos") else base.eos_ids
                found = replayed(drafter, candidate.plan, answer, base.vocabulary, target.spec.max_len, stops)
                if found.tokens:
                    plain = found.tokens * (costs.forward(1) + costs.rest)
                    pairs.append((plain, found.seconds(costs.forward, costs.rest)))
                tokens, steps = tokens + found.tokens, steps + len(found.rows)
                draft_s, rows = draft_s + found.draft_s, rows + sum(found.rows)
            return {
                "spec": candidate.spec,
                "speedup": rounded(total_ratio(pairs, resamples=1).value if pairs else 1.0),
                "tau": rounded(tokens / steps if steps else 1.0),
                "draft_ms_per_token": rounded(1e3 * draft_s / tokens if tokens else 0.0),
                "rows_per_step": rounded(rows / steps if steps else 1.0),
                "answers": len(known),
            }

        found: dict[str, Any] = self._run.unit(f"{self._work.name}/replay/{candidate.spec}/{len(known)}", ask)
        return found

    def _live(self, specs: Sequence[str]) -> Samples:
        """Finalists beside plain decoding, prompt by prompt, as long as there is time (and on three prompts if not)."""
        start = perf_counter()
        arms: list[Arm] = [self._bench.plain(), self._bench.plain(AGAIN), *(self._bench.arm(spec) for spec in specs)]
        once = replace(self._asked, rounds=1, turns=1)
        units, left = list[Unit](), list[str]()
        for turn, prompt in self._turns():
            one = Workload(self._work.name, (prompt,), self._work.source)
            found = measure(self._bench, self._run, arms, [one], once, key=f"{self._work.name}/live/{turn}")
            units += [replace(unit, round=turn) for unit in found.units]
            left += found.left_out
            enough = len({unit.prompt for unit in units}) >= FEWEST
            if enough and perf_counter() - self._began > self._seconds:
                break
        self.spent["live"] = perf_counter() - start
        return Samples(units, left)

    def _turns(self) -> Iterator[tuple[int, Any]]:
        """Prompts in an order spread over the workload; three rounds if time allows."""
        prompts = [p for p in self._work.prompts if self._fits(p.turns[0])]
        step = max(1, len(prompts) // FEWEST)
        spread = [prompt for first in range(step) for prompt in prompts[first::step]]
        for turn in range(3):
            for prompt in spread:
                yield turn, prompt

    def _fits(self, text: str) -> bool:
        room = self._bench.target.spec.max_len - int(self._asked.params["max_tokens"])
        return len(self._bench.tokens(user((text,)))) <= room


def recommend(arms: Mapping[str, Any], bench: Bench) -> dict[str, Any]:
    """The fastest arm by total time if it is faster beyond the noise, else none; with commands for it."""
    ranked = sorted(
        (n for n in arms if n != PLAIN), key=lambda n: -((arms[n]["speedup_total"] or {"value": 0})["value"])
    )
    best = ranked[0] if ranked else PLAIN
    pays = arms[best]["verdict"] == "faster"
    if not ranked:
        why = "no candidate was expected to be faster than plain decoding"
    elif pays:
        why = "faster than plain decoding beyond the noise of this machine"
    else:
        why = f"the best candidate, {best}, is not faster beyond the noise of this machine ({arms[best]['verdict']})"
    spec = best if pays else "none"
    config = bench.base.config
    weights = "" if config.weights == "auto" else f" --weights {config.weights}"
    return {
        "speculate": pays,
        "spec": spec,
        "speedup": arms[spec]["speedup"] if pays else None,
        "speedup_total": arms[spec]["speedup_total"] if pays else None,
        "best_not_taken": None if pays or not ranked else best,
        "why": why,
        "command": f'forerun generate -m {config.model} -d {spec}{weights} "…"',
        "vllm": vllm(spec),
        "llama_cpp": llama_cpp(spec),
    }


def answers(bench: Bench, drafters: Sequence[str], workloads: Sequence[Workload], asked: Asked) -> Answers:
    """The five answers of such a run."""
    return Answers(
        relative_to="plain decoding through the same engine, prompt by prompt in turn; candidates ranked by replay",
        batch="1",
        stack=bench.stack,
        data=data(workloads, asked),
        shape=f"{len(candidates(drafters))} candidates of {', '.join(drafters)}",
    )


def view(figures: Mapping[str, Any]) -> list[View]:
    """For each workload: what to do, what was measured, what was expected."""
    views: list[View] = []
    for name, found in figures["workloads"].items():
        views += [noise_note(found["noise"]), _live_table(name, found), _expected(name, found), _chart(name, found)]
        views.append(Note(_said(name, found["recommend"])))
    return views


def _said(name: str, advice: Mapping[str, Any]) -> str:
    if not advice["speculate"]:
        lines = [f"{name}: do not speculate: {advice['why']}.", f"  {advice['command']}"]
    else:
        gain = interval(advice["speedup_total"])
        lines = [f"{name}: speculate with {advice['spec']}: {gain} times as fast in all, {advice['why']}."]
        lines.append(f"  {advice['command']}")
        lines += [f"  nearest in vLLM: {advice['vllm']}", f"  nearest in llama.cpp: {advice['llama_cpp']}"]
    return "\n".join(lines)


def _live_table(name: str, found: Mapping[str, Any]) -> Table:
    rows = [
        (arm, number(f["ms_per_token"]), interval(f["speedup"]), interval(f["speedup_total"]), f["verdict"] or "-")
        for arm, f in found["arms"].items()
    ]
    heads = ("measured", "ms/token", "speed-up (median)", "in all", "verdict")
    prompts = max(f["prompts"] for f in found["arms"].values())
    return Table(f"{name}: {prompts} prompts, noise {interval(found['noise'], 3)}", heads, tuple(rows))


def _expected(name: str, found: Mapping[str, Any]) -> Table:
    rows = [
        (
            e["spec"],
            number(e["speedup"]),
            number(e["tau"]),
            number(e["draft_ms_per_token"], 3),
            number(e["rows_per_step"]),
        )
        for e in found["candidates"][:8]
    ]
    title = f"{name}: expected from {found['prompts']} answers, the best of {len(found['candidates'])}"
    return Table(title, ("candidate", "speed-up", "tau", "draft ms/token", "rows/step"), tuple(rows))


def _chart(name: str, found: Mapping[str, Any]) -> Chart:
    best = found["candidates"][:12]
    ys = tuple(entry["speedup"] for entry in best)
    series = Series("expected", tuple(entry["spec"] for entry in best), ys)
    return Chart("bars", f"{name}: expected speed-up", "", "times", (series,), level=1.0)
