"""How does speculation fare as prompts grow? Prompts of exactly so many tokens, up to the model's limit.

A prompt is a piece of a long text with a question at its end. For each length: milliseconds a token, time to the first
token, speed-up with its interval, tau and acceptance, beside plain decoding of the same prompts.

examples:
  forerun lab context
  forerun lab context --context 512,4096 --text book.txt --weights bf16
  forerun lab context -d suffix --pieces 6 --tokens 64 --out measured/context.json"""

from __future__ import annotations

import argparse
from pathlib import Path

from forerun.cli.lab import common

SWEEP = True


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.lab.defaults import CONTEXT_PIECES, CONTEXT_TOKENS, CONTEXTS, DRAFTERS

    shown = ",".join(map(str, CONTEXTS))
    parser.add_argument(
        "--context",
        metavar="N,…",
        help=f"tokens of a prompt ({shown}, as far as model and text reach, and that)",
    )
    parser.add_argument(
        "--text", type=Path, metavar="FILE", help="a long text in UTF-8 to ask about (the shipped suites' prompts)"
    )
    parser.add_argument("--question", help="what is asked at the end of a prompt (to retell the text)")
    parser.add_argument("--pieces", type=int, default=CONTEXT_PIECES, help=f"prompts of each length ({CONTEXT_PIECES})")
    common.add_drafters(parser, DRAFTERS)
    common.add_data(parser, (), 0, CONTEXT_TOKENS, without=("workload", "prompts", "turns", "ignore_eos"))
    parser.set_defaults(turns=1, ignore_eos=True)
    common.add_engine(parser)
    common.add_output(parser, log=True)


def run(args: argparse.Namespace) -> int:
    """Measure and tell."""
    from forerun.core.errors import SpecError
    from forerun.lab.defaults import CONTEXTS
    from forerun.lab.sweeps.context import QUESTION, Cutter, answers, lengths, long_text, run_context

    if args.pieces < 1:
        raise SpecError(f"--pieces takes a whole number from 1 up, got {args.pieces}")
    drafters, asked, text = common.chosen_drafters(args), common.asked(args), long_text(args.text)
    wanted = None if args.context is None else common.numbers("--context", args.context)
    with (
        common.session(args, "context", workloads=[text.as_workload], drafters=drafters) as (bench, run),
        common.step_log(args) as log,
    ):
        cutter = Cutter(bench, text, args.question or QUESTION)
        limit = bench.target.spec.max_len - int(asked.params["max_tokens"])
        sizes = lengths(wanted, CONTEXTS, cutter, limit)
        sizes = sizes[:2] if args.quick and wanted is None else sizes
        figures, samples = run_context(bench, run, cutter, sizes, args.pieces, drafters, asked, log)
        said = answers(bench, text, args.pieces, drafters, asked)
        return common.deliver(args, run, bench.provenance(), said, figures, samples.to_json())
