"""The lab from Python, for notebooks: one model, one's own prompts, one method an experiment.

    study = Study("smollm2", "mine.jsonl")
    study.domains()     # in a notebook this draws itself; print() gives the tables

Each method measures what the command of its name measures and writes a file of the same form. Its defaults are its own:
grids that a notebook can wait for, and the same prompts for all. The file names the call where others name a command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.assemble import Config
from forerun.core.options import build
from forerun.lab import defaults, domains, machine, phases, shape
from forerun.lab.advice import advise
from forerun.lab.bench import Bench
from forerun.lab.costs import curve, curve_view
from forerun.lab.experiments import views
from forerun.lab.paired import Asked
from forerun.lab.run import Answers, Run, facts
from forerun.lab.views import spoken
from forerun.workloads.workload import workload


@dataclass(frozen=True, slots=True)
class Shown:
    """A result that draws itself in a notebook."""

    result: Mapping[str, Any]

    @property
    def figures(self) -> Mapping[str, Any]:
        """Every figure by name."""
        figures: Mapping[str, Any] = self.result["figures"]
        return figures

    def __str__(self) -> str:
        return spoken(views(self.result["experiment"], self.figures))

    def _repr_html_(self) -> str:
        from forerun.lab.page.report import drawn
        from forerun.lab.page.web import part

        shown = views(self.result["experiment"], self.figures)
        return "\n".join(part(drawn(view, f"v{i}")) for i, view in enumerate(shown))


class Study:
    """Experiments on `model` with `prompts` (a shipped suite, a file, hub:NAME; or several of them).

    `count` is the most prompts of each, `tokens` the most of an answer, `results` a folder for results files (None
    writes none). Further options are fields of `Config`. Raises as `forerun.load` does.
    """

    def __init__(
        self,
        model: str,
        prompts: str | os.PathLike[str] | Sequence[str] = "dialogue",
        *,
        drafters: Sequence[str] = defaults.DRAFTERS,
        count: int = defaults.PROMPTS,
        tokens: int = defaults.TOKENS,
        rounds: int = 1,
        results: str | os.PathLike[str] | None = None,
        **engine: object,
    ) -> None:
        names = [os.fspath(prompts)] if isinstance(prompts, str | os.PathLike) else list(prompts)
        self.workloads = [workload(name).take(count) for name in names]
        self.drafters = list(drafters)
        self.asked = Asked({"max_tokens": tokens}, rounds)
        self.bench = Bench.open(build(Config, {"model": model, **engine}, "engine"))
        self._results = None if results is None else Path(results)
        said = [repr(model), repr(names[0] if len(names) == 1 else names)]
        options = {"drafters": self.drafters, "count": count, "tokens": tokens, "rounds": rounds, **engine}
        usual = {"drafters": list(defaults.DRAFTERS), "count": defaults.PROMPTS, "tokens": defaults.TOKENS, "rounds": 1}
        said += [f"{name}={value!r}" for name, value in options.items() if name not in usual or value != usual[name]]
        self._call = f"Study({', '.join(said)})"

    def curve(self, rows: Sequence[int] = (1, 2, 4, 8, 16), context: int = 256, repeats: int = 9) -> Shown:
        """Milliseconds of a forward by rows, and the share of the memory bandwidth that one row reaches."""
        from forerun.lab.bandwidth import Bandwidth, reader

        grid = curve.Grid(tuple(rows), contexts=(context,), repeats=repeats)
        run, call = self._begin("curve", rows=list(rows), context=context, repeats=repeats)
        bandwidth = Bandwidth(self.bench.subject.weight_bytes, reader())
        bandwidth.measure()
        samples = curve.measure(self.bench.target, grid)
        found = curve_view.figures(self.bench.subject, grid, samples, bandwidth)
        return self._finish(run, call, curve_view.answers(self.bench.stack, grid), found, samples.to_json())

    def domains(self) -> Shown:
        """Does it pay, on each set of prompts?"""
        run, call = self._begin("domains")
        found, samples = domains.run_domains(self.bench, run, self.drafters, self.workloads, self.asked)
        said = domains.answers(self.bench, self.drafters, self.workloads, self.asked)
        return self._finish(run, call, said, found, samples.to_json())

    def phases(self, depths: Sequence[int] = (1, 2, 4, 8)) -> Shown:
        """Where does a step's time go, and do the formulas hold?"""
        run, call = self._begin("phases", depths=list(depths))
        found, samples = phases.run_phases(self.bench, run, self.drafters, self.workloads, self.asked, list(depths))
        said = phases.answers(self.bench, self.drafters, self.workloads, self.asked)
        return self._finish(run, call, said, found, samples.to_json())

    def shape(
        self, depths: Sequence[int] = (1, 2, 4, 8), widths: Sequence[int] = (1, 2), nodes: Sequence[int] = (7, 15)
    ) -> Shown:
        """How deep, how wide, how many nodes?"""
        grid = shape.Grid(tuple(depths), tuple(widths), tuple(nodes))
        run, call = self._begin("shape", depths=list(depths), widths=list(widths), nodes=list(nodes))
        found, samples = shape.run_shape(self.bench, run, self.drafters, self.workloads, self.asked, grid)
        said = shape.answers(self.bench, self.drafters, self.workloads, self.asked, grid)
        return self._finish(run, call, said, found, samples.to_json())

    def advise(self, seconds: float = defaults.ADVISE_SECONDS) -> Shown:
        """Speculate or not, with which drafter and shape? Takes about `seconds` for each set of prompts."""
        run, call = self._begin("advise", seconds=seconds)
        found: dict[str, Any] = {}
        samples: list[object] = []
        for work in self.workloads:
            advisor = advise.Advisor(self.bench, run, work, self.asked, seconds)
            found[work.name], live = advisor.advise(self.drafters)
            samples += live.to_json()
        said = advise.answers(self.bench, self.drafters, self.workloads, self.asked, found)
        return self._finish(run, call, said, {"workloads": found, "budget_s": seconds}, samples)

    def _begin(self, experiment: str, **asked: object) -> tuple[Run, str]:
        """The run of an experiment, which an interrupted one is known again by, and the call that asked for it."""
        out = None if self._results is None else self._results / f"{experiment}.json"
        opened = machine.moment()
        ask = {
            "stack": self.bench.stack,
            "fingerprint": self.bench.target.spec.fingerprint,
            "drafters": self.drafters,
            "params": dict(self.asked.params),
            "rounds": self.asked.rounds,
            **facts(opened, self.workloads, self.drafters),
            **asked,
        }
        run = Run(experiment, out, ask, opened=opened)
        for notice in run.notices:
            print(notice, file=sys.stderr)
        return run, f"{self._call}.{experiment}({', '.join(f'{name}={value!r}' for name, value in asked.items())})"

    def _finish(
        self, run: Run, call: str, said: Answers, figures: Mapping[str, Any], samples: Sequence[object]
    ) -> Shown:
        return Shown(run.finish(self.bench.provenance(call), said, figures, samples))
