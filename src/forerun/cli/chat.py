"""Talk with a model; the conversation so far stays in memory between turns.

example:
  forerun chat -m smollm2 -d ngram --temperature 0.7"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from forerun.cli.common import (
    add_conversation,
    add_engine,
    add_sampling,
    conversation_from,
    engine_from,
    params_from,
    stats_line,
    warn_if_lossy,
    warn_if_unread,
)


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--stats", action="store_true", help="after each answer, what speculation did, on stderr")
    parser.add_argument(
        "--show", action="store_true", help="on a terminal, colour tokens that were drafted and accepted"
    )
    add_conversation(parser)
    add_engine(parser)
    add_sampling(parser)


def run(args: argparse.Namespace) -> int:
    """Read messages and commands, answer them, until the end of input."""
    from forerun.cli.talk import Talk, command_in, obey
    from forerun.cli.typed import reader

    params, options = params_from(args), conversation_from(args)
    with engine_from(args) as engine:
        warn_if_lossy(engine)
        warn_if_unread(args)
        talk = Talk(args.system)
        typed = reader()
        if sys.stdin.isatty():
            print("/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves", file=sys.stderr)
        while (text := typed()) is not None:
            if command_in(text):
                if not obey(talk, text):
                    break
            elif text.strip():
                _answer(engine, talk, text.strip(), params, options, args)
    return 0


def _answer(
    engine: Any, talk: Any, text: str, params: dict[str, Any], options: dict[str, Any], args: argparse.Namespace
) -> None:
    """One turn; one that cannot be answered, or was stopped before it said anything, is no part of the conversation."""
    from forerun.cli.show import stream
    from forerun.cli.wrap import Wrapped
    from forerun.core.errors import CapacityError, SpecError

    terminal, shown = sys.stdin.isatty(), sys.stdout.isatty()
    said = None
    talk.ask(text)
    try:
        prompt = engine.chat(talk.messages, **options)
        wrap = Wrapped() if shown else None
        said = stream(engine, prompt, params, colour=args.show and shown, wrap=wrap, keep=terminal)
    except (CapacityError, SpecError) as error:
        if isinstance(error, SpecError) and not terminal:
            raise
        print(f"{error} (/new starts over)", file=sys.stderr)
    except KeyboardInterrupt:
        if not terminal:
            raise
    if said is None or (said.finish_reason == "cancelled" and not said.text.strip()):
        talk.take_back()
        return
    if said.finish_reason == "cancelled":
        print("stopped: what was said stays in the conversation", file=sys.stderr)
    talk.hear(said)
    if args.stats:
        print(f"{stats_line(said.stats)}; {said.stats.reused} prompt tokens reused", file=sys.stderr)
