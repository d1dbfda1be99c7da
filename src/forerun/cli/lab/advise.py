"""Speculate or not, with which drafter and shape? An answer for your model and prompts within a time budget.

Plain decoding answers some prompts; drafters and shapes are ranked on these answers without running the model again,
and the best few are measured live. Ends with a recommendation, the command for it, and the nearest options of vLLM and
llama.cpp.

examples:
  forerun lab advise -m smollm2
  forerun lab advise -m smollm2 --prompts mine.jsonl --seconds 120
  forerun lab advise --prompts code --prompts dialogue -d ngram -d model:path=draft --out measured/advise.json"""

from __future__ import annotations

import argparse

from forerun.cli.lab import common


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.lab.defaults import ADVISE_DRAFTERS, ADVISE_SECONDS, TOKENS

    common.add_drafters(parser, ADVISE_DRAFTERS)
    data = parser.add_argument_group("prompts and answers")
    data.add_argument(
        "--prompts",
        action="append",
        metavar="NAME|FILE|hub:NAME",
        help="what you ask: a file of prompts, or a shipped suite; may be given again, each is advised on (dialogue)",
    )
    data.add_argument("--seconds", type=float, default=ADVISE_SECONDS, help=f"for each of them ({ADVISE_SECONDS})")
    data.add_argument("--tokens", type=int, default=TOKENS, help=f"most tokens of an answer ({TOKENS})")
    data.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (0)")
    data.add_argument("--top-p", type=float, default=1.0, help="(1)")
    data.add_argument("--seed", type=int, default=0, help="of draws, and of the order of the arms (0)")
    common.add_engine(parser)
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and advise."""
    from forerun.core.errors import SpecError
    from forerun.lab.advice.advise import Advisor, answers
    from forerun.lab.paired import Asked
    from forerun.workloads.workload import workload

    if not 1.0 <= args.seconds <= 86400.0:
        raise SpecError(f"--seconds takes a number from 1 to 86400, got {args.seconds:g}")
    drafters = common.chosen_drafters(args)
    if not args.drafter:
        drafters += _shipped(args.model)
    workloads = [workload(name) for name in dict.fromkeys(args.prompts or ["dialogue"])]
    names = [work.name for work in workloads]
    if len(set(names)) < len(names):  # each is told by its name, in the file too
        raise SpecError(f"--prompts need different names, got {', '.join(names)}: rename a file")
    params: dict[str, object] = {"max_tokens": common.least(args, "tokens")}
    if args.temperature or args.top_p != 1.0:
        params |= {"temperature": args.temperature, "top_p": args.top_p, "seed": args.seed}
    asked = Asked(params, seed=args.seed)
    seconds = min(args.seconds, 10.0) if args.quick else args.seconds
    with common.session(args, "advise", workloads=workloads, drafters=drafters) as (bench, run):
        found, samples = {}, []
        for work in run.track(workloads, "advise"):
            found[work.name], live = Advisor(bench, run, work, asked, seconds).advise(drafters)
            samples += live.to_json()
        figures = {"workloads": found, "budget_s": seconds}
        said = answers(bench, drafters, workloads, asked, found)
        return common.deliver(args, run, bench.provenance(), said, figures, samples)


def _shipped(model: str) -> list[str]:
    """Drafters of the heads that come with forerun for this model, alone and beside a lookup."""
    from forerun import heads
    from forerun.lab.shapes import is_random

    kinds = [] if is_random(model) else heads.shipped_for(model)
    return [*kinds, *(f"mixed:of=ngram+{kind}" for kind in kinds if kind in ("eagle3", "p-eagle"))]
