"""One generation on one page: each step's tree, what stood and why not, probabilities, where the time went.

The page is a single file that needs no network. --compare answers the same prompt unwatched, with the drafter and with
`plain` (or another drafter), and says how long both took: one answer each, an impression and no measurement.

examples:
  forerun lab trace "one two three one two three" -o trace.html
  forerun lab trace -d suffix:width=3,nodes=15 --max-tokens 500 --compare plain -o trace.html "Write a poem."
  forerun lab trace -d skip --temperature 0.8 --seed 7 -o trace.html - < prompt.txt"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.cli.tell import tell

if TYPE_CHECKING:
    from forerun.lab.bench import Bench


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.cli.common import add_sampling
    from forerun.cli.lab import common

    parser.add_argument("prompt", help="the user's text; - reads standard input")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="PAGE.html", help="the page")
    parser.add_argument("-d", "--drafter", default="ngram", metavar="NAME[:KEY=VALUE,…]", help="who guesses (ngram)")
    parser.add_argument("--compare", metavar="plain|NAME", help="answer unwatched too, beside this one")
    parser.add_argument("--raw", action="store_true", help="continue the text itself, without the chat template")
    common.add_engine(parser)
    add_sampling(parser)


def run(args: argparse.Namespace) -> int:
    """Answer, watch, and write the page."""
    from forerun.assemble import Config
    from forerun.cli.common import params_from, read_text, warn_if_unread
    from forerun.cli.lab import common
    from forerun.core.errors import SpecError
    from forerun.core.options import Spec, build
    from forerun.drafters.specs import split_plan
    from forerun.lab.bench import Bench
    from forerun.lab.machine import write_whole
    from forerun.lab.page.out import check_page
    from forerun.lab.trace.page import counts, page, summary
    from forerun.lab.trace.record import record

    check_page(args.out, (".html", ".htm"))
    prompt = read_text("-") if args.prompt == "-" else args.prompt
    if not prompt:
        raise SpecError("the prompt is empty: give the model something to answer")
    params = _seeded(params_from(args))
    for spec in {args.drafter, args.compare or "plain"} - {"plain"}:
        split_plan(Spec.parse(spec))  # refuses names and options that do not exist, before the model is loaded
    warn_if_unread(args)
    bench = Bench.open(build(Config, {"model": args.model, **common.engine_options(args)}, "engine"))
    found = record(bench, args.drafter, _ids(bench, prompt, args.raw), params, args.compare)
    if not found.lossless:
        print(f"warning: the verifier {found.verifier!r} is lossy: this is not the model's own text", file=sys.stderr)
    write_whole(args.out, page(found, prompt, params, bench.provenance()))
    print(f"written to {args.out}", file=sys.stderr)
    facts = "; ".join(f"{name} {said}" for name, said in summary(found, params))
    tell(args, f"{found.text}\n\n{facts}", {"experiment": "trace", "page": str(args.out), **counts(found)})
    return 0


def _seeded(params: dict[str, object]) -> dict[str, object]:
    """With a seed where one is drawn by, so that the page can name it."""
    from forerun.core.noise import fresh_seed

    return {"seed": fresh_seed(), **params} if params.get("temperature") else params


def _ids(bench: Bench, prompt: str, raw: bool) -> list[int]:
    """The prompt as token ids, as a user's turn or as it is."""
    if raw and bench.base.words is not None:
        return bench.base.words.encode(prompt, bos=True)
    return bench.tokens([{"role": "user", "content": prompt}])
