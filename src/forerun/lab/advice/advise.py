"""Speculate or not, with which drafter and shape: the answer for one's own prompts, in a minute.

Plain decoding answers some prompts; every drafter and shape is led along these answers without the target (`replay`),
and a short cost curve says what a forward takes by rows. So a whole grid is ranked for the price of drafting. The few
that look best are then measured live beside plain decoding, which alone decides; what is not faster than the machine's
noise is not recommended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

from forerun.core.errors import SpecError
from forerun.core.options import Spec
from forerun.drafters.first_of import runs_model
from forerun.lab.advice.grid import Candidate, candidates
from forerun.lab.advice.recommend import Tried, recommend
from forerun.lab.advice.replay import Known, can_replay, listened
from forerun.lab.advice.replay import replay as replayed
from forerun.lab.arms import Arm
from forerun.lab.bench import AGAIN, PLAIN, Bench
from forerun.lab.costs.curve import Grid
from forerun.lab.costs.curve import measure as measure_curve
from forerun.lab.paired import Asked, Samples, Session, Unit, arm_figures, noise_figures, opening, rounded
from forerun.lab.restored import restored
from forerun.lab.run import Answers, Run
from forerun.lab.sample import Sample, digest
from forerun.lab.stats import FEWEST, Interval, total_ratio, verdict
from forerun.workloads.workload import Prompt, Workload

ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
KNOWN = 4  # answers of plain decoding, at least, that candidates are led along
SCOUTS = 3  # of them that all candidates are tried on, before the poor ones are dropped
NEAR = 0.9  # part of the best one's speed that a candidate needs to stay
FULLY = 3  # candidates that are led along every answer, whatever the time
HOPELESS = 2  # shapes in a row, of a drafter that runs a model, that fall behind before the deeper ones are given up
ROUNDS = 3  # most of the live measurement
SHARES = {"plain": 0.25, "replay": 0.3}  # of the time; what is left is for measuring live


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


class Advisor:
    """One workload's way from prompts to a recommendation, within `seconds` as far as they reach for FEWEST prompts
    measured live. Of each prompt the first turn is asked."""

    def __init__(self, bench: Bench, run: Run, work: Workload, asked: Asked, seconds: float) -> None:
        self._began = perf_counter()
        self._bench, self._run, self._work = bench, run, work
        self._asked = replace(asked, rounds=1, turns=1)
        self._seconds = seconds
        self._room = bench.target.spec.max_len - int(asked.params["max_tokens"])
        self._cases, self._left_out = self._fitting()
        self.spent: dict[str, float] = {}
        self._listened: dict[tuple[int, ...], dict[tuple[int, ...], Known]] = {}

    def advise(self, drafters: Sequence[str]) -> tuple[dict[str, Any], Samples]:
        """The figures of this workload, and the live samples behind them."""
        known, plain = self._plain()
        costs = self._costs(known, plain)
        ranked, untried = self._rank(candidates(drafters), known, costs)
        finalists = finals(ranked)
        live = [spec for spec in drafters if not self._can_replay(spec)]
        samples = self._live([*finalists, *live])
        same = samples.pairs(PLAIN, AGAIN)
        floor = total_ratio(same) if same else None  # of the figure that is judged
        arms = {name: judged(samples, name, floor) for name in [PLAIN, *finalists, *live]}
        self.spent["total"] = perf_counter() - self._began
        quiet = noise_figures(samples)
        basis = Tried(*told_apart(drafters, [*(entry["spec"] for entry in ranked), *live], untried), quiet)
        found = {
            "prompts": len(known),
            "ms_by_rows": {str(rows): rounded(1e3 * s) for rows, s in costs.by_rows.items()},
            "rest_ms": rounded(1e3 * costs.rest),
            "candidates": ranked,
            "untried": untried,
            "noise": quiet,
            "arms": arms,
            "live": {
                "prompts": len({unit.prompt for unit in samples.units}),
                "rounds": 1 + max(unit.round for unit in samples.units),
            },
            "left_out": list(samples.left_out),
            "recommend": recommend(arms, self._bench.base.config, self._asked.params, basis),
            "budget_s": self._seconds,
            "seconds": {name: round(value, 2) for name, value in self.spent.items()},
        }
        return found, samples

    def _fitting(self) -> tuple[list[tuple[int, Prompt]], list[str]]:
        """The prompts beside which an answer fits, each with its number, in an order that is spread over the workload;
        and the names of the rest."""
        cases: list[tuple[int, Prompt]] = []
        left_out = []
        for index, prompt in enumerate(self._work.prompts):
            if len(self._bench.tokens(opening(prompt))) <= self._room:
                cases.append((index, prompt))
            else:
                left_out.append(f"{self._work.name}/{prompt.id}")
        step = max(1, len(cases) // FEWEST)
        return [case for first in range(step) for case in cases[first::step]], left_out

    def _plain(self) -> tuple[list[Known], list[Sample]]:
        """Answers of plain decoding, as many prompts as the time allows."""
        arm, known, samples = self._bench.plain(), list[Known](), list[Sample]()
        start, params = perf_counter(), dict(self._asked.params)
        for index, prompt in self._cases:
            ids = self._bench.tokens(opening(prompt))
            mine = {**params, "seed": params["seed"] + index} if params.get("seed") is not None else params

            def ask(ids: list[int] = ids, mine: dict[str, Any] = mine) -> dict[str, Any]:
                sample = arm.answer([ids], mine)
                return {"ids": list(sample.ids[0]), "sample": sample.to_json()}

            record = self._run.unit(f"{self._work.name}/plain/{prompt.id}", ask)
            if len(record["ids"]) > 1:
                known.append(Known(tuple(ids), tuple(record["ids"]), mine))
                samples.append(restored(Sample, record["sample"]))
            if len(known) >= KNOWN and perf_counter() - start > SHARES["plain"] * self._seconds:
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

    def _rank(
        self, grid: Sequence[Candidate], known: Sequence[Known], costs: Costs
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Candidates that can be replayed: the fastest first, those led along every answer before those that were only
        tried on a few; and the specs that were not tried, for lack of time or of hope.

        Lookups cost next to nothing and go first, all of them. What runs a model costs as much as decoding; its shapes
        are tried from the shallowest on, until two in a row fall behind."""
        start, deadline = perf_counter(), SHARES["replay"] * self._seconds
        first: dict[Candidate, dict[str, Any]] = {}
        final: dict[Candidate, dict[str, Any]] = {}
        scouts = known[:: max(1, len(known) // SCOUTS)][:SCOUTS]

        def late() -> bool:
            return len(final) >= FULLY and perf_counter() - start > deadline

        def near() -> list[Candidate]:
            best = max((entry["speedup"] for entry in first.values()), default=1.0)
            left = [c for c in first if c not in final and first[c]["speedup"] >= NEAR * best]
            return sorted(left, key=lambda c: -first[c]["speedup"])

        lookups, models = self._by_cost(grid)
        untried: list[str] = []
        for group in (lookups, *models):
            behind = 0
            for candidate in group:
                if late() or (behind == HOPELESS and group is not lookups):
                    untried.append(candidate.spec)
                    continue
                first[candidate] = self._predict(candidate, scouts, costs)
                behind = 0 if candidate in near() else behind + 1
            for candidate in near():
                if not late():
                    final[candidate] = self._predict(candidate, known, costs)
        rest = [entry for candidate, entry in first.items() if candidate not in final]
        self.spent["replay"] = perf_counter() - start
        ranked = [entry for part in (list(final.values()), rest) for entry in sorted(part, key=lambda e: -e["speedup"])]
        return ranked, untried

    def _by_cost(self, grid: Sequence[Candidate]) -> tuple[list[Candidate], list[list[Candidate]]]:
        """Candidates whose drafters look things up, and those of each drafter that runs a model, shallowest first.
        What must be measured live is in neither."""
        lookups: list[Candidate] = []
        models: dict[int, list[Candidate]] = {}
        for candidate in grid:
            drafter = self._bench.arm(candidate.spec).engine.parts.drafter
            if can_replay(drafter):
                (models.setdefault(id(drafter), []) if runs_model(drafter) else lookups).append(candidate)
        groups = [sorted(group, key=lambda c: (c.plan.depth, c.plan.width)) for group in models.values()]
        return lookups, groups

    def _can_replay(self, spec: str) -> bool:
        return can_replay(self._bench.arm(spec).engine.parts.drafter)

    def _predict(self, candidate: Candidate, known: Sequence[Known], costs: Costs) -> dict[str, Any]:
        """What a candidate would make of these answers, as figures."""
        base, target = self._bench.base, self._bench.target
        drafter = self._bench.arm(candidate.spec).engine.parts.drafter

        def ask() -> dict[str, Any]:
            pairs, tokens, steps, draft_s, rows = [], 0, 0, 0.0, 0
            for answer in self._heard(known, drafter.taps):
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

        which = digest([(*answer.prompt, *answer.answer) for answer in known])  # a run that goes on may know more
        found: dict[str, Any] = self._run.unit(f"{self._work.name}/replay/{candidate.spec}/{which}", ask)
        return found

    def _heard(self, known: Sequence[Known], taps: tuple[int, ...]) -> list[Known]:
        """These answers with the hidden states that a drafter taps, captured once."""
        if not taps:
            return list(known)
        heard = self._listened.setdefault(taps, {})
        for answer in known:
            key = (*answer.prompt, *answer.answer)
            if key not in heard:
                heard[key] = listened(answer, self._bench.target, taps)
        return [heard[*answer.prompt, *answer.answer] for answer in known]

    def _live(self, specs: Sequence[str]) -> Samples:
        """Finalists beside plain decoding, prompt by prompt: at least FEWEST of them, then as long as there is time."""
        start, name = perf_counter(), self._work.name
        arms: list[Arm] = [self._bench.plain(), self._bench.plain(AGAIN), *(self._bench.arm(spec) for spec in specs)]
        session = Session(self._bench, arms, self._asked, self._room, None)  # one, so that arms are warmed up once
        who, least = "+".join(specs), min(FEWEST, len(self._cases))
        units = list[Unit]()
        for round, index, prompt in self._turns():
            key = f"{name}/live/{who}/{prompt.id}/{round}"
            (turn,) = self._run.unit(key, partial(session.unit, name, index, prompt, round))
            found = {arm: restored(Sample, value) for arm, value in turn.items()}
            units.append(Unit(name, prompt.id, 0, round, found))
            if len({unit.prompt for unit in units}) >= least and perf_counter() - self._began > self._seconds:
                break
        self.spent["live"] = perf_counter() - start
        return Samples(units, self._left_out)

    def _turns(self) -> Iterator[tuple[int, int, Prompt]]:
        """Rounds, numbers and prompts in the order in which they are asked."""
        for round in range(ROUNDS):
            for index, prompt in self._cases:
                yield round, index, prompt


def finals(ranked: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is measured live: the candidate that looks best, and the best one of another drafter if it is near. Its own
    neighbours differ by less than the noise, and would take the time that telling it from plain decoding needs."""
    hopeful = [entry for entry in ranked if entry["speedup"] > 1.0]
    if not hopeful:
        return []
    best = hopeful[0]
    near = [entry for entry in hopeful if entry["speedup"] >= NEAR * best["speedup"]]
    others = [entry for entry in near if Spec.parse(entry["spec"]).name != Spec.parse(best["spec"]).name]
    return [best["spec"], *(entry["spec"] for entry in others[:1])]


def told_apart(
    drafters: Sequence[str], tried: Sequence[str], untried: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of the drafters that were asked for those of which some shape was tried, and those of which none was."""
    names = {text: {candidate.spec for candidate in candidates([text])} | {text} for text in drafters}
    some = {text for text, specs in names.items() if specs & set(tried)}
    none = {text for text, specs in names.items() if specs & set(untried) and text not in some}
    return tuple(text for text in drafters if text in some), tuple(text for text in drafters if text in none)


def judged(samples: Samples, name: str, floor: Interval | None) -> dict[str, Any]:
    """One arm's figures, with a verdict on its total speed-up: what is reported of an arm is what it is judged by."""
    pairs = samples.pairs(PLAIN, name)
    said = verdict(total_ratio(pairs), floor) if pairs and floor else None
    return {**arm_figures(samples, name, floor=floor), "verdict_total": said}


def answers(
    bench: Bench, drafters: Sequence[str], workloads: Sequence[Workload], asked: Asked, found: Mapping[str, Any]
) -> Answers:
    """The five answers of such a run; `found` are the figures of each workload, which say how much of it was asked."""
    return Answers(
        relative_to="plain decoding through the same engine, prompt by prompt in turn; candidates ranked by replay",
        stack=bench.stack,
        data=_data(workloads, asked, found),
        shape=f"{len(candidates(drafters))} candidates of {', '.join(drafters)}",
    )


def _data(workloads: Sequence[Workload], asked: Asked, found: Mapping[str, Any]) -> str:
    """Which prompts, how many of them were asked and how, in one line."""
    sets = []
    for work in workloads:
        live, left = found[work.name]["live"], found[work.name]["left_out"]
        said = f"{work.name} ({len(work.prompts)} prompts, {work.digest}; {live['prompts']} of them measured live in "
        said += f"{live['rounds']} rounds, answers to {found[work.name]['prompts']} replayed"
        sets.append(f"{said}; left out as too long: {', '.join(left)})" if left else f"{said})")
    p = asked.params
    how = f"temperature {p['temperature']:g}, seed {p.get('seed')}" if p.get("temperature") else "greedy"
    ends = ", end of text suppressed" if p.get("ignore_eos") else ""
    return f"{', '.join(sets)}; first turns, at most {p['max_tokens']} tokens an answer{ends}, {how}"
