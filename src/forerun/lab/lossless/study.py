"""The whole of `lab lossless`: four looks at one promise, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.core.errors import SpecError, unknown
from forerun.engine.engine import Engine
from forerun.lab.bench import Bench
from forerun.lab.defaults import LOSSLESS_PARTS
from forerun.lab.lossless.asking import SAMPLINGS, Question, questions, spread
from forerun.lab.lossless.exact import measure_exact
from forerun.lab.lossless.findings import findings, overall
from forerun.lab.lossless.identity import Identity
from forerun.lab.lossless.rows import RowStudy
from forerun.lab.lossless.sampled import SampledStudy
from forerun.lab.run import Answers, Run
from forerun.testing.sabotage import FAULTS
from forerun.verify.names import verifier
from forerun.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class Setup:
    """How much is compared. SpecError for what cannot be meant."""

    parts: tuple[str, ...] = LOSSLESS_PARTS
    batch: int = 10
    """Questions at once, in identity and rows."""
    tokens: int = 40
    """Most tokens of an answer there."""
    seed: int = 0
    """Of all draws, from 0 up: generators of the test take no other."""
    row_prompts: int = 10
    """Questions whose rows are compared."""
    answers: int = 40
    """Answers of each arm to each question whose distribution is tested."""
    sampled_prompts: int = 6
    sampled_tokens: int = 16
    calibrate: int = 0
    """Tests of plain decoding against itself on this model."""
    sabotage: str | None = None
    quick: bool = False

    @property
    def brief(self) -> int:
        """Most tokens of an answer whose distribution is tested."""
        return min(self.tokens, self.sampled_tokens)

    def __post_init__(self) -> None:
        for part in self.parts:
            if part not in LOSSLESS_PARTS:
                raise unknown("part", part, LOSSLESS_PARTS)
        if not self.parts:
            raise SpecError(f"give at least one part of {', '.join(LOSSLESS_PARTS)}")
        if self.sabotage is not None and self.sabotage not in FAULTS:
            raise unknown("sabotage", self.sabotage, FAULTS)
        if self.sabotage and "exact" not in self.parts:
            raise SpecError("a sabotage is planted in the part exact: add it to --parts")
        least = {"batch": 1, "tokens": 2, "answers": 5, "sampled_prompts": 1, "row_prompts": 1, "calibrate": 0}
        for name, low in {**least, "seed": 0}.items():
            value = getattr(self, name)
            if value < low:
                raise SpecError(f"{name} must be a whole number from {low} up, got {value}")
        if 0 < self.calibrate < 5:
            raise SpecError(f"calibrate needs at least 5 tests to say anything, got {self.calibrate}; 0 is none")


def run_lossless(
    bench: Bench, run: Run, drafters: Sequence[str], workloads: Sequence[Workload], setup: Setup
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The figures and what they come from: of each part that was asked for, with what was found and a verdict."""
    judge = bench.base.config.verify
    if "sampled" in setup.parts and verifier(judge).greedy_only:
        raise SpecError("a verifier for greedy requests draws nothing: leave the part sampled out (--parts)")
    engines = {spec: bench.arm(spec).engine for spec in drafters}
    figures: dict[str, Any] = {"runtime": bench.subject.runtime, "dtype": bench.target.spec.dtype}
    samples: list[dict[str, Any]] = []
    for part in setup.parts:
        if part == "exact":
            figures[part], found = measure_exact(run, judge, setup.sabotage, quick=setup.quick)
        else:
            asked, left_out = questions(bench, workloads, setup.tokens)
            figures["left_out"] = left_out
            figures[part], found = _measure(part, bench, run, engines, asked, setup)
        samples += found
    found_out = findings(figures)
    return {"verdict": overall(found_out), "findings": found_out, **figures}, samples


def _measure(
    part: str, bench: Bench, run: Run, engines: Mapping[str, Engine], asked: Sequence[Question], setup: Setup
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    greedy_only = verifier(bench.base.config.verify).greedy_only
    samplings = [name for name, params in SAMPLINGS.items() if not (params and greedy_only)]
    if part == "identity":
        return Identity(bench, engines, asked, samplings, setup.batch, setup.tokens, setup.seed).measure(run)
    if part == "rows":
        some = spread(asked, setup.row_prompts)
        return RowStudy(bench, engines, some, samplings, setup.batch, setup.tokens, setup.seed).measure(run)
    some = spread(asked, setup.sampled_prompts)
    study = SampledStudy(bench, engines, some, setup.answers, setup.brief, setup.seed, setup.calibrate)
    return study.measure(run, quick=setup.quick)


def default_drafters(layers: int) -> tuple[str, ...]:
    """One of every kind that needs no second model, for a target of so many layers: `skip` drafts with two thirds of
    them, so that enough of it stands, once with foreseen drafts and once with drawn ones."""
    deep = max(1, 2 * layers // 3)
    return (
        "ngram",
        "suffix:width=3,nodes=15,factor=2",
        "prediction",
        f"skip:layers={deep}",
        f"skip:layers={deep},law=sampled",
        f"skip:layers={deep},law=distinct,width=2,nodes=6",
        "first_of:of=prediction+ngram",
    )


def answers(bench: Bench, drafters: Sequence[str], workloads: Sequence[Workload], setup: Setup) -> Answers:
    """The five answers of such a run."""
    sets = ", ".join(f"{work.name} ({len(work.prompts)} prompts, {work.digest})" for work in workloads)
    said = {
        "identity": f"at most {setup.tokens} tokens an answer, {len(SAMPLINGS)} ways of sampling, seed {setup.seed}",
        "rows": f"rows of at most {setup.row_prompts} answers",
        "exact": "toys for the enumeration",
        "sampled": f"{setup.answers} answers an arm to {setup.sampled_prompts} prompts, at most {setup.brief} tokens",
    }
    return Answers(
        relative_to="plain decoding through the same engine",
        batch=f"{setup.batch}" + (f" ({setup.answers} where distributions are tested)" * ("sampled" in setup.parts)),
        stack=f"{bench.stack}, verifier {bench.base.config.verify}",
        data="; ".join([sets, *(said[part] for part in setup.parts)]),
        shape="; ".join(drafters),
    )
