"""Measure what decides whether speculation pays: with your model, your prompts, on your machine.

examples:
  forerun lab advise -m smollm2
  forerun lab domains -d ngram -d suffix --workload code --workload dialogue --out measured/domains.json
  forerun lab curve --weights bf16 --rows 1,16,64"""

from __future__ import annotations

import argparse
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from forerun.cli.lab.common import described
from forerun.cli.tell import add_common

_FIRST = (
    "advise", "curve", "domains", "shape", "tree", "phases", "batch", "context", "temperature", "weights", "size",
    "lossless", "endpoint", "trace", "report", "check",
)  # fmt: skip
"""The order in which help lists experiments; others follow."""
_NAMES = sorted(
    {module.name for module in iter_modules(__path__)} - {"common"},
    key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name),
)
EXPERIMENTS: dict[str, ModuleType] = {name: import_module(f"{__name__}.{name}") for name in _NAMES}
"""Every module of this folder is one, a command of its own: its docstring is the help, `add` gives its options, `run`
does it. One with `SWEEP = True` is a preset of `lab sweep`, too."""


def add(parser: argparse.ArgumentParser) -> None:
    """The experiments, each a command of its own."""
    commands = parser.add_subparsers(dest="experiment", metavar="EXPERIMENT", required=True, parser_class=type(parser))
    for name, module in EXPERIMENTS.items():
        said = described(module)
        command = commands.add_parser(name, help=said["description"], **said)
        add_common(command)
        module.add(command)
        if name == "sweep":
            command.set_defaults(sweeps={name: other for name, other in EXPERIMENTS.items() if hasattr(other, "SWEEP")})


def run(args: argparse.Namespace) -> int:
    """Run the experiment that was named."""
    return int(EXPERIMENTS[args.experiment].run(args))
