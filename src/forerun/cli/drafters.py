"""List the drafters and their options.

example:
  forerun drafters"""

from __future__ import annotations

import argparse
import json


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print every drafter with its options and their defaults."""
    from forerun.drafters.specs import describe_drafters

    known = describe_drafters()
    if args.json:
        print(json.dumps(known, ensure_ascii=False))
        return 0
    for name, entry in known.items():
        print(f"{name}: {entry['summary']}")
        for option in entry["options"]:
            print(f"    {option['name']}={option['default']}  {option['help']}")
    print("\nUse one as -d NAME or -d NAME:KEY=VALUE,KEY=VALUE, e.g. -d ngram:depth=12")
    return 0
