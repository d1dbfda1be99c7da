"""All arms on every prompt, in turn: the only way in which times of a shared machine can be compared.

A unit is one prompt (all of its turns) in one round: every arm answers it, in an order that is drawn for the unit, so
a drift of the machine falls on all alike. Plain decoding runs twice under two names; the ratio of the two is the noise
floor of everything else. Later turns are asked with the first arm's answers before them, so all arms read the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from forerun.core.errors import SpecError
from forerun.lab.arms import Arm, Listener
from forerun.lab.bench import AGAIN, PLAIN, Bench
from forerun.lab.looping import counted
from forerun.lab.restored import restored
from forerun.lab.run import Run
from forerun.lab.sample import Counts, Sample
from forerun.lab.stats import Interval, Pairs, calm, ratio, total_ratio, verdict
from forerun.workloads.workload import Prompt, Workload

WARM_TOKENS = 8
LogFor = Callable[[Mapping[str, object]], Listener]
"""Facts of an answer (workload, prompt, turn, round, arm) -> who hears its steps."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What all arms did with one turn of a prompt."""

    workload: str
    prompt: str
    turn: int
    round: int
    samples: Mapping[str, Sample]
    point: float | None = None
    """Of a sweep: the value of its axis."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How every prompt is asked."""

    params: Mapping[str, Any]
    """Fields of SamplingParams; a seed is moved on by the prompt's number."""
    rounds: int = 1
    turns: int | None = None
    """Most turns of a prompt; None is all."""
    seed: int = 0
    """Of the order of the arms."""

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise SpecError(f"rounds must be a whole number from 1 up, got {self.rounds}")
        if self.turns is not None and self.turns < 1:
            raise SpecError(f"turns must be a whole number from 1 up, or left out for all, got {self.turns}")
        if not self.params.get("max_tokens"):
            raise SpecError("answers need a length: give max_tokens")


class Samples:
    """Units, and the figures that follow from them."""

    def __init__(self, units: Sequence[Unit], left_out: Sequence[str] = ()) -> None:
        self.units = tuple(units)
        self.left_out = tuple(left_out)

    def of(self, workload: str) -> Samples:
        """Those of one workload."""
        return Samples([unit for unit in self.units if unit.workload == workload])

    def at(self, point: float) -> Samples:
        """The same as those of a sweep's point."""
        return Samples([replace(unit, point=point) for unit in self.units], self.left_out)

    def without_loops(self, *arms: str) -> Samples:
        """Those of the prompts to which no answer of these arms loops, in any turn or round."""
        looping = {(u.workload, u.prompt) for u in self.units if any(u.samples[arm].loops for arm in arms)}
        return Samples([u for u in self.units if (u.workload, u.prompt) not in looping], self.left_out)

    def arm(self, name: str) -> list[Sample]:
        """One arm's samples in order."""
        return [unit.samples[name] for unit in self.units]

    def pairs(self, first: str, second: str) -> Pairs:
        """For each prompt that both arms answered in more than one step: medians over rounds of the milliseconds a
        token, its turns together. Prompts are not read in this time; see `answers`."""
        return self._pairs(_ms, first, second)

    def answers(self, first: str, second: str) -> Pairs:
        """For each prompt: medians over rounds of the seconds from asking to the whole answer, summed over its turns.
        All that an arm does is in it, reading the prompt (the drafter's own reading too) as well as the answer."""
        return self._pairs(_whole_s, first, second)

    def firsts(self, first: str, second: str) -> Pairs:
        """For each prompt: medians over rounds of the milliseconds to an answer's first token, the mean of its turns;
        in a batch, until every answer has one."""
        return self._pairs(_first_ms, first, second)

    def _pairs(self, figure: Callable[[Sequence[Sample]], float | None], first: str, second: str) -> Pairs:
        """For each prompt of which both arms have it: the medians over rounds of a figure of its turns."""
        by_prompt: dict[tuple[str, str], dict[int, list[Unit]]] = {}
        for unit in self.units:
            by_prompt.setdefault((unit.workload, unit.prompt), {}).setdefault(unit.round, []).append(unit)
        pairs = []
        for rounds in by_prompt.values():
            found = [
                [figure([unit.samples[arm] for unit in units]) for arm in (first, second)] for units in rounds.values()
            ]
            whole = [(a, b) for a, b in found if a and b]
            if whole:
                pairs.append((median(a for a, _ in whole), median(b for _, b in whole)))
        return pairs

    def to_json(self) -> list[dict[str, object]]:
        """One object a turn and arm, with its point where it is a sweep's."""
        places = [{"workload": u.workload, "prompt": u.prompt, "turn": u.turn, "round": u.round} for u in self.units]
        return [
            {**({} if u.point is None else {"point": u.point}), **place, "arm": name, **s.to_json()}
            for u, place in zip(self.units, places, strict=True)
            for name, s in u.samples.items()
        ]


def _ms(samples: Sequence[Sample]) -> float | None:
    """Milliseconds a token over the turns of one prompt in one round; None where no turn took a second step."""
    tokens = sum(s.tokens / s.answers for s in samples)
    return 1e3 * sum(s.decode_s for s in samples) / tokens if tokens else None


def _whole_s(samples: Sequence[Sample]) -> float:
    return sum(s.first_s + s.decode_s for s in samples)


def _first_ms(samples: Sequence[Sample]) -> float:
    return 1e3 * sum(s.first_s for s in samples) / len(samples)


def measure(
    bench: Bench,
    run: Run,
    arms: Sequence[Arm],
    workloads: Sequence[Workload],
    asked: Asked,
    *,
    key: str = "",
    log: LogFor | None = None,
) -> Samples:
    """Answer every prompt of `workloads` with every arm. Prompts and later turns that do not fit the context are
    left out and named.

    `key` sets the units of several measurements of one run apart. Whatever a kept unit holds is not measured again.
    """
    names = [arm.name for arm in arms]
    if len(set(names)) < len(names):
        raise SpecError(f"arms need different names, got {', '.join(names)}")
    room = bench.target.spec.max_len - int(asked.params["max_tokens"])
    cases, left_out = _fitting(bench, workloads, room)
    todo = [(round, *case) for round in range(asked.rounds) for case in cases]
    session = Session(bench, arms, asked, room, log)
    units: list[Unit] = []
    for round, work, index, prompt in run.track(todo, key or run.experiment):
        name = f"{key}/{work}/{prompt.id}/{round}"
        turns = run.unit(name, partial(session.unit, work, index, prompt, round))
        for turn, samples in enumerate(turns):
            found = {arm: restored(Sample, value) for arm, value in samples.items()}
            units.append(Unit(work, prompt.id, turn, round, found))
        left_out += [
            f"{work}/{prompt.id} turn {turn + 1}" for turn in range(len(turns), len(prompt.turns[: asked.turns]))
        ]
    return Samples(units, list(dict.fromkeys(left_out)))  # a turn is left out in every round


def _fitting(bench: Bench, workloads: Sequence[Workload], room: int) -> tuple[list[tuple[str, int, Prompt]], list[str]]:
    """Every prompt (with its workload and number) whose first turn has at most `room` tokens, and names of the rest."""
    cases, left_out = [], []
    for work in workloads:
        for index, prompt in enumerate(work.prompts):
            if len(bench.tokens(opening(prompt))) <= room:
                cases.append((work.name, index, prompt))
            else:
                left_out.append(f"{work.name}/{prompt.id}")
    if not cases:
        raise SpecError(
            f"no prompt fits: beside the answer the context has room for {room} tokens; ask for shorter ones"
        )
    return cases, left_out


class Session:
    """The measuring itself; arms are warmed up before the first unit that is really measured."""

    def __init__(self, bench: Bench, arms: Sequence[Arm], asked: Asked, room: int, log: LogFor | None) -> None:
        self._bench, self._arms, self._asked, self._room, self._log = bench, arms, asked, room, log
        self._warm = False

    def unit(self, workload: str, index: int, prompt: Prompt, round: int) -> list[dict[str, object]]:
        """One prompt: for each turn every arm's sample, as JSON."""
        order = random.Random(f"{self._asked.seed}/{workload}/{prompt.id}/{round}")
        messages = told(prompt)
        turns: list[dict[str, object]] = []
        params = dict(self._asked.params)
        if params.get("seed") is not None:
            params["seed"] += index
        for turn, text in enumerate(prompt.turns[: self._asked.turns]):
            messages.append({"role": "user", "content": text})
            ids = self._bench.tokens(messages)
            if len(ids) > self._room:
                break  # a later turn that does not fit; those after it are longer
            self._warm_up(ids, params)
            found = {}
            for arm in order.sample(list(self._arms), len(self._arms)):
                facts = {"workload": workload, "prompt": prompt.id, "turn": turn, "round": round, "arm": arm.name}
                found[arm.name] = arm.answer([ids], params, self._log(facts) if self._log else None)
            turns.append({arm.name: found[arm.name].to_json() for arm in self._arms})
            messages.append({"role": "assistant", "content": found[self._arms[0].name].texts[0]})
        return turns

    def _warm_up(self, ids: Sequence[int], params: Mapping[str, Any]) -> None:
        if not self._warm:
            for arm in self._arms:
                with self._bench.first_use(arm.name):
                    arm.answer([ids], {**params, "max_tokens": min(WARM_TOKENS, params["max_tokens"])})
            self._warm = True


def told(prompt: Prompt) -> list[dict[str, str]]:
    """What the model is told before a prompt's first turn, as messages."""
    return [{"role": "system", "content": prompt.system}] if prompt.system else []


def opening(prompt: Prompt) -> list[dict[str, str]]:
    """A prompt's first turn as messages, and what the model is told before it."""
    return [*told(prompt), {"role": "user", "content": prompt.text}]


def noise(samples: Samples, first: str = PLAIN, second: str = AGAIN) -> Interval:
    """The ratio of two runs of one arm."""
    return ratio(samples.pairs(first, second))


def arm_figures(samples: Samples, name: str, baseline: str = PLAIN, floor: Interval | None = None) -> dict[str, Any]:
    """One arm's figures over `samples`: speed against `baseline` with its verdict beside the noise `floor`, what was
    drafted and stood, where the time went. Null where a figure has no meaning (rates of nothing).

    `speedup` is the median over prompts of the ratio of milliseconds a token, `speedup_total` the ratio of their sums:
    every prompt weighs as its time a token, however long its answer. Both leave prompt reading out. `speedup_answer` is
    the ratio of the sums of whole answers, reading included: what somebody gains who sends all of these prompts. Where
    draws give the arms texts of different length it holds that difference too. `first_ms` is the time to the first
    token, a median over prompts. `looping` says how many answers repeat themselves, and the ratios without them.
    """
    mine, theirs = samples.arm(name), samples.arm(baseline)
    counts, pairs = Counts.of(mine), samples.pairs(baseline, name)
    speed = ratio(pairs) if pairs else None
    answers, firsts = samples.answers(baseline, name), samples.firsts(baseline, name)
    seconds = sum(s.decode_s for s in mine)
    named = dict.fromkeys(phase for s in mine for phase in s.phases)
    phases = {phase: sum(s.phases.get(phase, 0.0) for s in mine) for phase in named}
    tokens = sum(s.tokens for s in mine)
    return {
        "prompts": len(pairs),
        "tokens": tokens,
        "ms_per_token": rounded(median(b for _, b in pairs)) if pairs else None,
        "baseline_ms_per_token": rounded(median(a for a, _ in pairs)) if pairs else None,
        "tokens_per_s": rounded(tokens / seconds) if seconds else None,
        "speedup": speed.to_json() if speed else None,
        "speedup_total": total_ratio(pairs).to_json() if pairs else None,
        "speedup_answer": total_ratio(answers).to_json() if answers else None,
        "first_ms": rounded(median(b for _, b in firsts)) if firsts else None,
        "baseline_first_ms": rounded(median(a for a, _ in firsts)) if firsts else None,
        "verdict": verdict(speed, floor) if speed and floor else None,
        "looping": looping_figures(samples, name, baseline, floor),
        "same_text": sum(a.digest == b.digest for a, b in zip(mine, theirs, strict=True)),
        "answers": len(mine),
        "tau": rounded(counts.tau),
        "acceptance": rounded(counts.acceptance),
        "drafted": counts.drafted,
        "accepted": counts.accepted,
        "acceptance_by_position": [round(rate, 4) for rate in counts.by_position],
        "draft_share": rounded(phases.get("draft", 0.0) / seconds) if seconds else None,
        "phases_ms_per_token": {p: rounded(1e3 * value / tokens) for p, value in phases.items()} if tokens else {},
        "rows_per_token": rounded(sum(s.rows for s in mine) / tokens) if tokens else None,
        "cpu_ms_per_token": rounded(1e3 * sum(s.cpu_s for s in mine) / tokens) if tokens else None,
    }


def looping_figures(samples: Samples, name: str, baseline: str, floor: Interval | None) -> dict[str, Any] | None:
    """How far one arm's answers loop, and `without`, the speed-ups over the prompts to which neither arm's do; None of
    samples that do not tell."""
    mine = [one for sample in samples.arm(name) for one in sample.repeats]
    if not mine:
        return None
    found, rest = counted(mine), samples.without_loops(name, baseline)
    if not found["answers"] and len(rest.units) == len(samples.units):
        return {**found, "without": None}
    pairs, answers = rest.pairs(baseline, name), rest.answers(baseline, name)
    speed = ratio(pairs) if pairs else None
    without = {
        "prompts": len(pairs),
        "speedup": speed.to_json() if speed else None,
        "speedup_total": total_ratio(pairs).to_json() if pairs else None,
        "speedup_answer": total_ratio(answers).to_json() if answers else None,
        "verdict": verdict(speed, floor) if speed and floor else None,
    }
    return {**found, "without": without}


def noise_figures(samples: Samples) -> dict[str, Any] | None:
    """The noise floor as figures, with whether the machine was quiet enough; None where no prompt had two steps."""
    if not samples.pairs(PLAIN, AGAIN):
        return None
    floor = noise(samples)
    return {**floor.to_json(), "calm": calm(floor)}


def rounded(value: float | None, digits: int = 5) -> float | None:
    """For files: noise needs no digits."""
    return None if value is None else round(value, digits)
