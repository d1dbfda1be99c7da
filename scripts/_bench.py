"""What every bench script shares: an interpreter with forerun, and a results file of the lab's form."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from forerun.cli.lab import common
from forerun.core.errors import ForerunError
from forerun.lab import machine
from forerun.lab.run import Answers, Run
from forerun.native import ext

ROOT = Path(__file__).parent.parent


def provenance() -> dict[str, object]:
    """Machine, versions, commit, command and load: what a figure is worth nothing without."""
    script = os.path.relpath(sys.argv[0], ROOT)
    threads = torch.get_num_threads() if ext.why_not() else ext.threads()
    return {**machine.provenance(["python", script, *sys.argv[1:]]), "threads": threads}


def add_out(parser: argparse.ArgumentParser, experiment: str) -> None:
    """Where the results go: a file of the user's own, or with --record the one that ships."""
    own, shipped = (f"{folder}/{experiment}.json" for folder in ("measured", "results"))
    parser.add_argument("--out", type=Path, metavar="FILE.json", help=f"({own})")
    parser.add_argument("--record", action="store_true", help=f"write the shipped results ({shipped}, or --out there)")
    parser.add_argument("--json", action="store_true", help="print one JSON object in the place of tables")


@contextmanager
def measuring(args: argparse.Namespace, experiment: str) -> Iterator[Run]:
    """The run of these options, which the same command goes on with where it was cut short."""
    if args.out is None:
        args.out = ROOT / ("results" if args.record else "measured") / f"{experiment}.json"
    run = common.begin(args, experiment)
    with common.kept(run):
        yield run


def write(
    args: argparse.Namespace,
    run: Run,
    answers: Answers,
    figures: Mapping[str, Any],
    samples: Sequence[object],
    **facts: object,
) -> int:
    """Write the results whole and tell them; `facts` are further ones of the bench."""
    return common.deliver(args, run, provenance() | facts, answers, figures, samples)


def told(main: Callable[[], int]) -> int | str:
    """What `main` returns, for sys.exit; a foreseen failure in one line."""
    try:
        return main()
    except ForerunError as error:
        return f"Error: {error}"
