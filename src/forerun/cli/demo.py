"""See a real model answer with speculation and without, the same text, and what it saved.

examples:
  forerun demo
  forerun demo -d suffix --tokens 128"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from forerun.cli.common import add_engine, engine_from, warn_if_lossy
from forerun.cli.tell import tell

PROMPTS = 4
BEST_HEADS = ("eagle3", "p-eagle")
SUITES = ("edit", "code", "arithmetic", "dialogue")
"""In turn: where most can be looked up first, where nothing can last."""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--tokens", type=int, default=96, help="most tokens of each answer (96)")
    parser.add_argument(
        "--prompts", type=int, default=PROMPTS, help=f"prompts of {', '.join(SUITES)} in turn ({PROMPTS})"
    )
    add_engine(parser)
    parser.set_defaults(drafter="")


def run(args: argparse.Namespace) -> int:
    """Stream one answer, compare both ways prompt by prompt, print a table."""
    from forerun import heads
    from forerun.cli.compare import compare, table
    from forerun.cli.show import stream
    from forerun.core.errors import SpecError
    from forerun.workloads.suites import suite

    suites = [suite(name) for name in SUITES]
    known = [prompt for row in zip(*suites, strict=False) for prompt in row]
    if not 1 <= args.prompts <= len(known):
        raise SpecError(f"--prompts must be from 1 to {len(known)}, got {args.prompts}")
    prompts = known[: args.prompts]
    plain = args.runtime == "hf" or args.verify not in (None, "auto", "match", "greedy")  # heads draft trees, not there
    args.drafter = args.drafter or best_for([] if plain else heads.shipped_for(args.model))
    with engine_from(args, reuse=False) as engine:
        warn_if_lossy(engine)
        shown = prompts[0]
        print(f"{engine.parts.target.spec.name} with {args.drafter}; green: drafted, and right\n", file=sys.stderr)
        if not args.json:
            print(f"> {shown.text.splitlines()[0]}\n", file=sys.stderr)
            stream(engine, engine.chat(shown.text), {"max_tokens": args.tokens}, colour=sys.stdout.isatty())
        print("\nnow each prompt both ways, in turn …", file=sys.stderr)
        outcome = compare(engine, [engine.chat(prompt.text) for prompt in prompts], {"max_tokens": args.tokens})
    by_prompt = zip(prompts, outcome.by_prompt(), strict=True)
    each = [f"  {prompt.id:22}{'':12}{speed:13.2f}x" for prompt, speed in by_prompt if speed]
    tell(args, "\n".join([table(outcome), *each]), outcome.summary())
    return 0 if outcome.identical else 1


def best_for(kinds: Sequence[str]) -> str:
    """What to draft with where heads of these kinds come with forerun."""
    head = next((kind for kind in BEST_HEADS if kind in kinds), None)
    return f"mixed:of=ngram+{head}" if head else "ngram"
