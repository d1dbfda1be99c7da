"""How many CPU threads should it run on, and does that change which drafter pays?

For each number: tokens a second, speed-up with its interval and where it is not above 1 any more, beside plain decoding
on as many. Elsewhere the engine takes as many as it measures to be fastest, unless --threads says a number.

examples:
  forerun lab threads --counts 1,2,4 -d ngram -d eagle3 --weights int8 --out measured/threads.json"""

from __future__ import annotations

import argparse
from typing import Any

from forerun.cli.lab import common

SWEEP = True


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.lab.defaults import DRAFTERS, SWEEP_PROMPTS, SWEEP_TOKENS, SWEEP_WORKLOADS

    parser.add_argument("--counts", metavar="N,…", help="numbers of threads (halves of the cores to use)")
    common.add_drafters(parser, DRAFTERS)
    common.add_data(parser, SWEEP_WORKLOADS, SWEEP_PROMPTS, SWEEP_TOKENS)
    common.add_engine(parser, without=("threads",))
    common.add_output(parser, log=True)


def run(args: argparse.Namespace) -> int:
    """Measure and tell."""
    from forerun.assemble import choice_for
    from forerun.lab.domains import data
    from forerun.lab.paired import measure
    from forerun.lab.run import Answers
    from forerun.lab.sweeps.groups import placed
    from forerun.lab.sweeps.points import run_points
    from forerun.native import ext, tuner
    from forerun.targets.threads import use_threads

    counts = tuner.steps(ext.cores()) if args.counts is None else sorted(set(common.numbers("--counts", args.counts)))
    drafters, works, asked = common.chosen_drafters(args), common.chosen_workloads(args), common.asked(args)
    with (
        common.session(args, "threads", workloads=works, drafters=drafters) as (bench, run),
        common.step_log(args) as log,
    ):

        def ask(count: int, key: str, arms: Any) -> Any:
            use_threads(count, choice_for(bench.base.config))
            return measure(bench, run, arms, works, asked, key=key, log=placed(log, key))

        figures, samples = run_points(bench, run, "threads", counts, drafters, ask)
        plain = "plain decoding on as many threads, prompt by prompt in turn"
        said = Answers(relative_to=plain, stack=bench.stack, data=data(works, asked), shape="; ".join(drafters))
        return common.deliver(args, run, bench.provenance(), said, figures, samples.to_json())
