"""How does speculation fare as answers are drawn more freely? Temperatures with top-p, each against plain decoding.

For each temperature: speed-up with its interval, tau, acceptance, and how many answers are plain decoding's, token for
token: all of them for drafters that leave a seed's text alone. Laws are compared by giving a drafter twice.

examples:
  forerun lab temperature
  forerun lab temperature --temperature 0,0.7,1 --top-p 0.9 -d ngram --workload dialogue
  forerun lab temperature -d skip:layers=20 -d skip:layers=20,law=sampled --out measured/temperature.json"""

from __future__ import annotations

import argparse

from forerun.cli.lab import common

SWEEP = True


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.lab.defaults import DRAFTERS, SWEEP_PROMPTS, SWEEP_TOKENS, SWEEP_WORKLOADS, TEMPERATURES

    shown = ",".join(f"{value:g}" for value in TEMPERATURES)
    parser.add_argument("--temperature", metavar="T,…", help=f"temperatures; 0 is greedy ({shown})")
    common.add_drafters(parser, DRAFTERS)
    common.add_data(parser, SWEEP_WORKLOADS, SWEEP_PROMPTS, SWEEP_TOKENS, without=("temperature",))
    common.add_engine(parser)
    common.add_output(parser, log=True)


def run(args: argparse.Namespace) -> int:
    """Measure and tell."""
    from forerun.core.params import SamplingParams
    from forerun.lab.defaults import TEMPERATURES
    from forerun.lab.paired import Asked
    from forerun.lab.sweeps.temperature import answers, run_temperature

    given = args.temperature is not None
    values = sorted(set(common.decimals("--temperature", args.temperature))) if given else list(TEMPERATURES)
    if args.quick and not given:
        values = values[::3]
    drafters, workloads = common.chosen_drafters(args), common.chosen_workloads(args)
    params = {"max_tokens": common.least(args, "tokens"), **({"ignore_eos": True} if args.ignore_eos else {})}
    asked = Asked(params, common.least(args, "rounds"), args.turns, args.seed)
    for value in values:
        SamplingParams(temperature=value, top_p=args.top_p, seed=args.seed)  # refused before anything is loaded
    with (
        common.session(args, "temperature", workloads=workloads, drafters=drafters) as (bench, run),
        common.step_log(args) as log,
    ):
        figures, samples = run_temperature(bench, run, values, args.top_p, drafters, workloads, asked, log)
        said = answers(bench, values, args.top_p, drafters, workloads, asked)
        return common.deliver(args, run, bench.provenance(), said, figures, samples.to_json())
