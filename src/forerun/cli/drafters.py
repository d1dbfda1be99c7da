"""List the drafters and their options.

example:
  forerun drafters"""

from __future__ import annotations

import argparse

from forerun.cli.tell import tell


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""


def run(args: argparse.Namespace) -> int:
    """Print every drafter with its options and their defaults."""
    from forerun.drafters.specs import describe_drafters

    known = describe_drafters()
    lines = []
    for name, entry in known.items():
        lines.append(f"{name}: {entry['summary']}")
        lines += [f"    {option['name']}={option['default']}  {option['help']}" for option in entry["options"]]
    lines += ["", "Use one as -d NAME or -d NAME:KEY=VALUE,KEY=VALUE, e.g. -d ngram:depth=12"]
    tell(args, "\n".join(lines), known)
    return 0
