"""Talk with a model; the conversation so far stays in memory between turns.

example:
  forerun chat -m smollm2 -d ngram --temperature 0.7"""

from __future__ import annotations

import argparse
import sys

from forerun.cli.common import (
    add_engine,
    add_sampling,
    engine_from,
    params_from,
    stats_line,
    warn_if_lossy,
    warn_if_unread,
)


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--system", help="instructions that stand before the conversation")
    parser.add_argument("--stats", action="store_true", help="after each answer, what speculation did, on stderr")
    parser.add_argument(
        "--show", action="store_true", help="on a terminal, colour tokens that were drafted and accepted"
    )
    add_engine(parser)
    add_sampling(parser)


def run(args: argparse.Namespace) -> int:
    """Read lines, answer them, until the end of input."""
    from forerun.cli.show import stream
    from forerun.core.errors import CapacityError

    params = params_from(args)
    messages: list[dict[str, object]] = [{"role": "system", "content": args.system}] if args.system else []
    with engine_from(args) as engine:
        warn_if_lossy(engine)
        warn_if_unread(args)
        if sys.stdin.isatty():
            print("/new starts over, Ctrl-C interrupts an answer, /bye or Ctrl-D ends", file=sys.stderr)
        while (line := _read()) is not None:
            if line == "/bye":
                break
            if line == "/new":
                del messages[1 if args.system else 0 :]
            if not line or line == "/new":
                continue
            messages.append({"role": "user", "content": line})
            try:
                result = stream(engine, engine.chat(messages), params, colour=args.show and sys.stdout.isatty())
            except CapacityError as error:
                messages.pop()
                print(f"{error} (/new starts over)", file=sys.stderr)
                continue
            except KeyboardInterrupt:
                if not sys.stdin.isatty():
                    raise
                messages.pop()
                print("\ninterrupted: this turn is forgotten", file=sys.stderr)
                continue
            messages.append({"role": "assistant", "content": result.text})
            if args.stats:
                print(f"{stats_line(result.stats)}; {result.stats.reused} prompt tokens reused", file=sys.stderr)
    return 0


def _read() -> str | None:
    """One line from the user; None at the end."""
    from forerun.core.errors import SpecError

    if sys.stdin.isatty():
        print("> ", end="", file=sys.stderr, flush=True)
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError as error:
        raise SpecError(f"standard input is not UTF-8 text: {error.reason} at byte {error.start}") from None
    return line.strip() if line else None
