"""Small prompt suites of our own, shipped with the package, so that a measurement can be repeated anywhere.

`edit` gives a piece of code and asks for the whole of it with a small change; `dialogue` asks for free text, where
nothing can be looked up.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files

from forerun.core.errors import unknown

SUITES = ("edit", "dialogue")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user's turn of a suite."""

    id: str
    text: str


def suite(name: str) -> tuple[Prompt, ...]:
    """The prompts of a suite; SpecError for a name that is not shipped."""
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    lines = files("forerun.workloads").joinpath(f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Prompt(**json.loads(line)) for line in lines if line)
