"""One condition changed step by step, all drafters at each step: where does speculation stop paying?

Each sweep is a command of its own, too: `forerun lab sweep --over batch …` is `forerun lab batch …`.

examples:
  forerun lab sweep --over threads
  forerun lab sweep --over batch --batch 1,4,16 -d ngram"""

from __future__ import annotations

import argparse

from forerun.cli.lab.common import described
from forerun.cli.tell import add_common
from forerun.core.errors import unknown


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument(
        "--over", nargs=argparse.REMAINDER, required=True, metavar="NAME [OPTION…]",
        help="what is swept, and options of the command of that name",
    )  # fmt: skip
    parser.set_defaults(parser_class=type(parser))


def run(args: argparse.Namespace) -> int:
    """Run the sweep that was named."""
    name, *options = args.over or [""]
    if name not in args.sweeps:
        raise unknown("sweep", name, args.sweeps)
    module = args.sweeps[name]
    command = args.parser_class(prog=f"forerun lab sweep --over {name}", **described(module))
    add_common(command)
    module.add(command)
    given = command.parse_args(options)
    given.experiment, given.json = name, given.json or args.json
    args.debug = getattr(args, "debug", False) or getattr(given, "debug", False)  # for whoever tells of an error
    return int(module.run(given))
