"""What a command says at its end: text for people, or one JSON object where --json asks for it, and never both."""

from __future__ import annotations

import argparse
import json
import sys


def add_common(parser: argparse.ArgumentParser) -> None:
    """Options of every command that has something to tell."""
    parser.add_argument("--json", action="store_true", help="print one JSON object in the place of the text")
    add_debug(parser)


def add_debug(parser: argparse.ArgumentParser) -> None:
    """The option of every command."""
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show an error's traceback")


def tell(args: argparse.Namespace, said: str, value: object) -> None:
    """Print `said`, or with --json `value` and nothing else; letters that the terminal lacks as escapes of JSON."""
    if args.json:
        utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        said = json.dumps(value, ensure_ascii=not utf8, allow_nan=False)
    print(said)
