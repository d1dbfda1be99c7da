"""Where does a step's time go, and do the formulas hold? Phases, predictions, and the price of speed.

Milliseconds in draft, score, verify, sampling, commit, detokenising and the rest (scheduler, loop), a token and a step;
tau * T(1) / (T_verify + D * T_draft + rest) beside the measured speed-up; Leviathan's alpha, expected tokens and best
depth beside the measured ones; rows thrown away and processor time. Says why a drafter does not pay where it does not.

examples:
  forerun lab phases
  forerun lab phases -d suffix -d skip:layers=20 --workload code --depths 1,2,4
  forerun lab phases -d model:path=DRAFT --out measured/phases.json"""

from __future__ import annotations

import argparse

from forerun.cli.lab import common

SWEEP = True


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.lab import defaults

    values = defaults.PHASES_DEPTHS
    parser.add_argument("--depths", default=values, metavar="N,…", help=f"depths that are tried too ({values})")
    common.add_drafters(parser, defaults.PHASES_DRAFTERS)
    common.add_data(parser, defaults.PHASES_WORKLOADS, defaults.PROMPTS, defaults.PHASES_TOKENS)
    common.add_engine(parser)
    common.add_output(parser, log=True)


def run(args: argparse.Namespace) -> int:
    """Measure and tell."""
    from forerun.lab.phases import answers, run_phases
    from forerun.lab.plans import base_plan

    depths = common.numbers("--depths", args.depths)
    drafters, workloads, asked = common.chosen_drafters(args), common.chosen_workloads(args), common.asked(args)
    for spec in drafters:
        base_plan(spec)  # refused before a model is loaded
    with (
        common.session(args, "phases", workloads=workloads, drafters=drafters) as (bench, run),
        common.step_log(args) as log,
    ):
        figures, samples = run_phases(bench, run, drafters, workloads, asked, depths, log)
        said = answers(bench, drafters, workloads, asked)
        return common.deliver(args, run, bench.provenance(), said, figures, samples.to_json())
