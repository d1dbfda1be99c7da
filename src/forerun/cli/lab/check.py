"""Hold texts against runs: every number that is marked as a claim must be what its results file says.

A claim in Markdown is a number with a comment right behind it, `2.37<!-- domains.json: workloads.code.tau -->`; in HTML
a `<data data-claim="…">`; those of a Markdown page may stand in a sidecar beside it. docs/claims.md has the notation,
units, and how a text names its runs. Exit status 1 if anything is wrong.

examples:
  forerun lab check README.md docs/*.md
  forerun lab check docs/study.md --results results --strict
  forerun lab check docs/study.md --pin
  forerun lab check docs/study.md --part"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from forerun.cli.tell import tell


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("texts", nargs="+", type=Path, metavar="FILE", help="Markdown, or HTML by its ending")
    parser.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="where results files lie (results)"
    )
    parser.add_argument(
        "--pin", action="store_true", help="once all claims agree, write into each text which runs it is about"
    )
    parser.add_argument(
        "--part", action="store_true", help="first move the claims of Markdown pages into sidecars: PAGE.claims"
    )
    parser.add_argument(
        "--strict", action="store_true", help="a number followed by x, ms, %% or tokens/s must carry a claim"
    )


def run(args: argparse.Namespace) -> int:
    """Check, tell, and say by the status whether all is well."""
    from forerun.lab.claims.check import check, part, pin

    for path in part(args.texts) if args.part else ():
        print(f"claims of {path} are beside it", file=sys.stderr)
    report = check(args.texts, args.results)
    if args.pin and all(fault.pin for fault in report.faults):
        for path in pin(args.texts, args.results):
            print(f"runs named in {path}", file=sys.stderr)
        report = check(args.texts, args.results)
    elif args.pin:
        print("no run is named before all claims agree", file=sys.stderr)
    wrong = [*report.faults, *(report.unmarked if args.strict else ())]
    claims, texts, files = ((report.claims, "claim"), (report.texts, "text"), (len(report.results), "results file"))
    well = f"{_count(*claims)} of {_count(*texts)} agree with {_count(*files)}"
    tell(args, "\n".join(map(str, wrong)) or well, report.to_json())
    return 1 if wrong else 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
