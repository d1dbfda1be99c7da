"""Measure what decides whether speculation pays: with your model, your prompts, on your machine.

examples:
  forerun lab advise -m smollm2
  forerun lab domains -d ngram -d suffix --workload code --workload dialogue --out measured/domains.json
  forerun lab curve --weights bf16 --rows 1,16,64"""

from __future__ import annotations

import argparse
from types import ModuleType

from forerun.cli.lab import (
    advise,
    batch,
    check,
    context,
    curve,
    domains,
    endpoint,
    lossless,
    phases,
    report,
    shape,
    size,
    temperature,
    trace,
    tree,
    weights,
)
from forerun.cli.tell import add_common

EXPERIMENTS: dict[str, ModuleType] = {
    "advise": advise,
    "curve": curve,
    "domains": domains,
    "shape": shape,
    "tree": tree,
    "phases": phases,
    "batch": batch,
    "context": context,
    "temperature": temperature,
    "weights": weights,
    "size": size,
    "lossless": lossless,
    "endpoint": endpoint,
    "trace": trace,
    "report": report,
    "check": check,
}


def add(parser: argparse.ArgumentParser) -> None:
    """The experiments, each a command of its own."""
    commands = parser.add_subparsers(dest="experiment", metavar="EXPERIMENT", required=True, parser_class=type(parser))
    for name, module in EXPERIMENTS.items():
        summary, _, more = (module.__doc__ or "").partition("\n\n")
        command = commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=more,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_common(command)
        module.add(command)


def run(args: argparse.Namespace) -> int:
    """Run the experiment that was named."""
    return int(EXPERIMENTS[args.experiment].run(args))
