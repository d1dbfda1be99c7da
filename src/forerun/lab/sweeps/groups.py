"""All arms on groups of prompts that are token ids already, one group after another: whole batches, cut contexts.

As `paired` does for conversations: a unit is one group, which every arm answers in an order drawn for it. Whoever makes
the groups says which are a repetition of which.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.lab.arms import Arm
from forerun.lab.paired import WARM_TOKENS, Asked, LogFor, Samples, Unit
from forerun.lab.restored import restored
from forerun.lab.run import Run
from forerun.lab.sample import Sample


@dataclass(frozen=True, slots=True)
class Group:
    """Prompts that are answered at once; groups of one name and different rounds are the same ones asked again."""

    name: str
    prompts: tuple[tuple[int, ...], ...]
    round: int = 0
    first: int = 0
    """The first prompt's number: a seed is moved on by each prompt's, so that no two of a sweep draw alike."""


def measure_groups(
    run: Run,
    arms: Sequence[Arm],
    groups: Sequence[Group],
    asked: Asked,
    *,
    key: str,
    workload: str,
    log: LogFor | None = None,
) -> Samples:
    """Answer every group with every arm; `asked.rounds` is left to the groups. `key` sets measurements of one run
    apart, `workload` is what the samples are said to be of."""
    warm = _Once(lambda: [arm.answer(groups[0].prompts, _short(asked)) for arm in arms])
    log = placed(log, key)
    units: list[Unit] = []
    for group in run.track(groups, key):
        name = f"{key}/{workload}/{group.name}/{group.round}"

        def answer(group: Group = group) -> dict[str, object]:
            warm()
            order = random.Random(f"{asked.seed}/{key}/{group.name}/{group.round}")
            params, found = _moved(asked, group.first), {}
            for arm in order.sample(list(arms), len(arms)):
                facts = {"prompt": group.name, "turn": 0, "round": group.round, "arm": arm.name}
                listener = log({"workload": workload, **facts}) if log else None
                found[arm.name] = arm.answer(group.prompts, params, listener)
            return {arm.name: found[arm.name].to_json() for arm in arms}

        samples = {arm: restored(Sample, value) for arm, value in run.unit(name, answer).items()}
        units.append(Unit(workload, group.name, 0, group.round, samples))
    return Samples(units)


def placed(log: LogFor | None, key: str) -> LogFor | None:
    """A log that is told at which point of a sweep it is, for every point asks the same prompts."""
    return None if log is None else lambda facts: log({**facts, "workload": f"{facts['workload']}, {key}"})


def _moved(asked: Asked, by: int) -> Mapping[str, Any]:
    """The parameters with a seed that is moved on; the arm moves it on further within the group."""
    seed = asked.params.get("seed")
    return asked.params if seed is None else {**asked.params, "seed": seed + by}


def _short(asked: Asked) -> dict[str, object]:
    return {**asked.params, "max_tokens": min(WARM_TOKENS, int(asked.params["max_tokens"]))}


@dataclass(slots=True)
class _Once:
    """Does something when it is first called: arms are not warmed up for groups that were kept."""

    work: Callable[[], object]
    done: bool = False

    def __call__(self) -> None:
        if not self.done:
            self.work()
            self.done = True
