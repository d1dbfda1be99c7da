"""How many requests at once until speculation stops paying? Whole batches, beside plain decoding of the same ones.

For each batch size: tokens a second of all requests, milliseconds a token of one, speed-up with its interval, and where
it is not above 1 any more. Every size answers the same prompts, mixed and drawn into batches that share none, with
answers of one length. An interval takes six different batches: for larger ones give more prompts.

examples:
  forerun lab batch
  forerun lab batch --batch 1,4,16 -d ngram:depth=4 -d ngram:up_to=8 --weights int8
  forerun lab batch --workload prompts.jsonl --prompts 64 --out measured/batch.json"""

from __future__ import annotations

import argparse

from forerun.cli.lab import common

SWEEP = True


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.lab.defaults import BATCH_PROMPTS, BATCH_TOKENS, BATCH_WORKLOADS, BATCHES, DRAFTERS

    shown = ",".join(map(str, BATCHES))
    help = f"requests at once ({shown}, as far as the prompts make six different batches)"
    parser.add_argument("--batch", metavar="N,…", help=help)
    common.add_drafters(parser, DRAFTERS)
    common.add_data(parser, BATCH_WORKLOADS, BATCH_PROMPTS, BATCH_TOKENS, without=("turns", "ignore_eos"))
    parser.set_defaults(turns=1, ignore_eos=True)
    common.add_engine(parser)
    common.add_output(parser, log=True)


def run(args: argparse.Namespace) -> int:
    """Measure and tell."""
    from forerun.assemble import Config
    from forerun.core.options import build
    from forerun.lab.defaults import BATCHES
    from forerun.lab.stats import FEWEST
    from forerun.lab.sweeps.batch import answers, engine_for, run_batch

    drafters, workloads, asked = common.chosen_drafters(args), common.chosen_workloads(args), common.asked(args)
    count = sum(map(len, workloads))
    sizes = [size for size in BATCHES if size * FEWEST <= count][:: 2 if args.quick else 1] or [1]
    if args.batch is not None:
        sizes = sorted(set(common.numbers("--batch", args.batch)))
    config = build(Config, {"model": args.model, **common.engine_options(args)}, "engine")
    engine = engine_for(config, sizes, drafters, workloads, int(asked.params["max_tokens"]))
    with (
        common.session(args, "batch", workloads=workloads, drafters=drafters, **engine) as (bench, run),
        common.step_log(args) as log,
    ):
        figures, samples = run_batch(bench, run, sizes, drafters, workloads, asked, log)
        said = answers(bench, sizes, drafters, workloads, asked)
        return common.deliver(args, run, bench.provenance(), said, figures, samples.to_json())
