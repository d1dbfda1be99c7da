"""The distribution of whole answers, with speculation and without, from different seeds.

For drafts that chance drew this is all that losslessness means, and for the others it is what a reader of the texts
could notice. Each arm answers each prompt many times; `permutation.py` tests, and Holm's adjustment keeps the false
alarms of all drafters together at the level. Beside the drafters stand plain decoding again, which must not differ, and
a lossy rule with a telling prediction, which must.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from forerun.engine.engine import Engine
from forerun.lab.bench import AGAIN, PLAIN, Bench
from forerun.lab.lossless.asking import Question, answer, judged_by, promises_text
from forerun.lab.lossless.permutation import Ids, pvalue, uniformity
from forerun.lab.run import Run
from forerun.lab.stats import holm
from forerun.testing.contests import CONTESTS, answers, toy
from forerun.verify.typical import Typical

LEVEL = 0.01
"""Below this an adjusted p-value says that the distribution is another one."""
PLANTED = "planted: typical"
REPETITIONS, QUICK_REPETITIONS = 200, 20  # of the test on toys
TOY_ANSWERS, TOY_PERMUTATIONS = 12, 999


@dataclass(frozen=True, slots=True)
class SampledStudy:
    """What is compared: each drafter's engine by its spec, with so many answers to each of these questions."""

    bench: Bench
    engines: Mapping[str, Engine]
    asked: Sequence[Question]
    answers: int
    tokens: int
    seed: int
    calibrate: int = 0
    """Tests of plain decoding against itself on this model."""

    def measure(self, run: Run, *, quick: bool = False) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The figures, and a sample for each arm and question."""
        names = (PLAIN, AGAIN, *self.engines, PLANTED)
        found: dict[str, list[dict[str, Any]]] = {}
        for name, index in run.track([(n, i) for n in names for i in range(len(self.asked))], "sampled"):
            unit = run.unit(f"sampled/{name}/{index}", partial(self._unit, names.index(name), name, index))
            found.setdefault(name, []).append(unit)
        arms = {name: self._arm(found[PLAIN], found[name], number) for number, name in enumerate(names) if number}
        adjusted = holm([arms[name]["pvalue"] for name in self.engines])
        for name, value in zip(self.engines, adjusted, strict=True):
            arms[name]["holm"] = round(value, 6)
            arms[name]["promises_text"] = promises_text(self.engines[name], greedy=False)
        repetitions = QUICK_REPETITIONS if quick else REPETITIONS
        figures = {
            "level": LEVEL,
            "answers": self.answers,
            "prompts": len(self.asked),
            "tokens": self.tokens,
            "arms": arms,
            "toy": run.unit("sampled/toy", lambda: toy_figures(repetitions, self.seed)),
            "calibration": self._calibration(run),
        }
        return figures, [{"part": "sampled", "arm": name, **unit} for name, units in found.items() for unit in units]

    def _unit(self, number: int, name: str, index: int) -> dict[str, Any]:
        """One arm's answers to one question, each from a seed that no other answer has."""
        asked = self.asked[index]
        plain = self.bench.plain().engine
        expected = answer(plain, [asked], [{"max_tokens": self.tokens}])[0].token_ids
        arm: AbstractContextManager[Engine] = nullcontext(self.engines.get(name, plain))
        if name == PLANTED:
            arm = judged_by(self.bench.arm("prediction", PLANTED).engine, Typical())
        with arm as engine:
            results = answer(engine, [asked] * self.answers, self._params((number, index), expected))
        return {
            "prompt": asked.name,
            "drafted": sum(result.stats.drafted for result in results),
            "accepted": sum(result.stats.accepted for result in results),
            "answers": [result.token_ids for result in results],
        }

    def _params(self, key: tuple[int, ...], expected: Sequence[int] = ()) -> list[dict[str, Any]]:
        seeds = np.random.default_rng([self.seed, *key]).integers(1 << 62, size=self.answers).tolist()
        common = {"max_tokens": self.tokens, "temperature": 1.0, "prediction": tuple(expected)}
        return [{**common, "seed": seed} for seed in seeds]

    def _arm(self, plain: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]], number: int) -> dict[str, Any]:
        strata = [(a["answers"], b["answers"]) for a, b in zip(plain, ours, strict=True)]
        return {
            "pvalue": round(pvalue(strata, np.random.default_rng([self.seed, number])), 6),
            "by_prompt": {
                unit["prompt"]: round(pvalue([pair], np.random.default_rng([self.seed, number, i])), 6)
                for i, (unit, pair) in enumerate(zip(ours, strata, strict=True))
            },
            "answers": sum(len(unit["answers"]) for unit in ours),
            "drafted": sum(unit["drafted"] for unit in ours),
            "accepted": sum(unit["accepted"] for unit in ours),
        }

    def _calibration(self, run: Run) -> dict[str, Any] | None:
        """The same test of plain decoding against itself on this model, question by question in turn; None if it was
        not asked for."""
        if not self.calibrate:
            return None
        units = run.track(range(self.calibrate), "calibration")
        return uniformity([run.unit(f"calibration/{i}", partial(self._alarm, i)) for i in units])

    def _alarm(self, i: int) -> float:
        asked, plain = self.asked[i % len(self.asked)], self.bench.plain().engine
        arms: list[list[Ids]] = [
            [result.token_ids for result in answer(plain, [asked] * self.answers, self._params((1 << 20, i, arm)))]
            for arm in (0, 1)
        ]
        return pvalue([(arms[0], arms[1])], np.random.default_rng([self.seed, 1 << 20, i]))


def toy_figures(repetitions: int, seed: int) -> dict[str, Any]:
    """For each contest of toys how its p-values lie: `uniformity`."""
    return {name: uniformity(toy_pvalues(name, repetitions, seed)) for name in CONTESTS}


def toy_pvalues(contest: str, repetitions: int, seed: int) -> list[float]:
    """P-values of so many tests between plain decoding and the contest's arm, each with new answers and seeds."""
    rng = np.random.default_rng([seed, CONTESTS.index(contest)])
    plain, other = toy("plain"), toy(contest)
    found = []
    for _ in range(repetitions):
        seeds = rng.integers(1 << 62, size=2 * TOY_ANSWERS).tolist()
        pair = answers(plain, seeds[:TOY_ANSWERS]), answers(other, seeds[TOY_ANSWERS:])
        found.append(pvalue([pair], rng, TOY_PERMUTATIONS))
    return found
