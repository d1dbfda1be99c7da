"""Does it pay, and on which texts? Drafters on several workloads, beside plain decoding.

For each workload: milliseconds a token, speed-up with its interval and what it says beside the noise floor, tau,
acceptance by position, the share of drafting, memory. The noise floor is plain decoding measured against itself.

Baselines are our own forward in a bare loop, and other engines on the same weights, each in a process of its own in the
environment that `scripts/peers` makes or FORERUN_PEERS names: transformers (bf16, f32), llama.cpp (auto, bf16, int8).

examples:
  forerun lab domains
  forerun lab domains -d ngram -d suffix:width=3,nodes=15 --workload code --workload prompts.jsonl
  forerun lab domains --weights bf16 --baseline transformers --baseline llama.cpp --out measured/domains.json"""

from __future__ import annotations

import argparse

from forerun.cli.lab import common

SWEEP = True


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.lab.defaults import BASELINES, DRAFTERS, PROMPTS, TOKENS, WORKLOADS

    common.add_drafters(parser, DRAFTERS)
    parser.add_argument(
        "--baseline",
        action="append",
        metavar="NAME",
        help=f"what else to compare with, greedily: {', '.join(BASELINES)}; may be given again (bare)",
    )
    common.add_data(parser, WORKLOADS, PROMPTS, TOKENS)
    common.add_engine(parser)
    common.add_output(parser, log=True)


def run(args: argparse.Namespace) -> int:
    """Measure and tell."""
    from forerun.lab.domains import answers, run_domains
    from forerun.lab.peers.arm import PeerArm, baseline_arms, check_baselines

    drafters, workloads, asked = common.chosen_drafters(args), common.chosen_workloads(args), common.asked(args)
    named = args.baseline or []
    python = check_baselines(named, asked.params)
    with (
        common.session(args, "domains", workloads=workloads, drafters=drafters) as (bench, run),
        common.step_log(args) as log,
        baseline_arms(named, bench, python) as others,
    ):
        figures, samples = run_domains(bench, run, drafters, workloads, asked, log, others if named else None)
        peers = [arm for arm in others if isinstance(arm, PeerArm)]
        said = answers(bench, drafters, workloads, asked, [str(peer) for peer in peers])
        whole = bench.provenance() | ({"peers": {peer.name: peer.facts for peer in peers}} if peers else {})
        return common.deliver(args, run, whole, said, figures, samples.to_json())
