"""Is the text the same? Identity, rows bit for bit, exact enumeration, and a test of distributions that is tested.

identity: every drafter against plain decoding, token for token, greedy and with the same seed; each difference with
position, both tokens and the margin between them. rows: the row each token was drawn from, bit for bit. exact: all
outcomes on toys, through the real loop. sampled: whole answers from other seeds, by permutation, with Holm's correction
and the test's own false alarms counted. Exits with 1 unless the verdict is lossless.

examples:
  forerun lab lossless --quick
  forerun lab lossless -d ngram -d skip:layers=20,law=sampled --parts identity,sampled --out measured/lossless.json
  forerun lab lossless --parts exact --sabotage residual"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from forerun.cli.lab import common

if TYPE_CHECKING:
    from forerun.lab.lossless import Setup

QUICK = {"batch": 8, "tokens": 24, "row_prompts": 3, "answers": 10, "sampled_prompts": 2}


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.lab import defaults as d

    common.add_drafters(parser, ("one of every kind",))
    parser.add_argument(
        "--parts", default=",".join(d.LOSSLESS_PARTS), metavar="A,B", help=f"({','.join(d.LOSSLESS_PARTS)})"
    )
    parser.add_argument(
        "--sabotage", help="also judge a broken verifier as if it were ours: odds, residual or siblings"
    )
    data = parser.add_argument_group("prompts and answers")
    data.add_argument(
        "--workload",
        action="append",
        metavar="NAME|FILE|hub:NAME",
        help="a shipped suite, a file of prompts or a public set; may be given again (all suites)",
    )
    for option, default, help in (
        ("--prompts", d.LOSSLESS_PROMPTS, "most prompts of each"),
        ("--tokens", d.LOSSLESS_TOKENS, "most tokens of an answer"),
        ("--batch", d.LOSSLESS_BATCH, "questions that run at once"),
        ("--answers", d.LOSSLESS_ANSWERS, "answers of each arm to a question, where distributions are tested"),
        ("--calibrate", 0, "tests of plain decoding against itself on this model; a toy is always tested"),
        ("--seed", 0, "of all draws"),
    ):
        data.add_argument(option, type=int, default=default, metavar="N", help=f"{help} ({default})")
    parser.set_defaults(default_workloads=d.LOSSLESS_WORKLOADS)
    common.add_engine(parser)
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Compare and tell."""
    from forerun.lab.lossless import answers, default_drafters, run_lossless

    setup = _setup(args)
    workloads = common.chosen_workloads(args)
    if args.quick:
        workloads = [work.take(1) for work in workloads]
    free = {} if args.costs else {"costs": "free"}  # what is not drafted, since it does not pay, is not proven either
    with common.session(args, "lossless", workloads=workloads, drafters=args.drafter or (), **free) as (bench, run):
        drafters = list(dict.fromkeys(args.drafter or default_drafters(bench.target.spec.layers)))
        figures, samples = run_lossless(bench, run, drafters, workloads, setup)
        said = answers(bench, drafters, workloads, setup)
        common.deliver(args, run, bench.provenance(), said, figures, samples)
    return 0 if figures["verdict"] == "lossless" else 1


def _setup(args: argparse.Namespace) -> Setup:
    """How much is compared; less of everything with --quick."""
    from forerun.lab.lossless import Setup

    given = {name: getattr(args, name) for name in ("batch", "tokens", "answers", "calibrate", "seed", "sabotage")}
    if args.quick:
        given |= {name: min(value, given.get(name, value)) for name, value in QUICK.items()}
    parts = tuple(dict.fromkeys(part.strip() for part in args.parts.split(",") if part.strip()))
    return Setup(parts=parts, quick=args.quick, **given)
