"""One name for whatever is asked in a measurement.

    code                        a suite of the package (`SUITES` lists them)
    my/prompts.jsonl            a file or folder; `files` tells the forms
    ./code                      a file whose name is a suite's
    hub:gsm8k                   a public set; `hub` lists them
    hub:gsm8k=gsm8k.parquet     the same from a copy

Each may end in #CATEGORY, which keeps the prompts of one: `spec_bench/question.jsonl#math_reasoning`,
`translation#de-en`.
"""

from __future__ import annotations

import os
from pathlib import Path

from forerun.core.errors import LoadError, unknown
from forerun.workloads.files import from_path
from forerun.workloads.hub import PREFIX, SETS, public
from forerun.workloads.prompts import Prompt, Workload
from forerun.workloads.suites import SUITES, suite

__all__ = ["SUITES", "Prompt", "Workload", "workload"]


def workload(name: str | os.PathLike[str]) -> Workload:
    """The prompts that a name, a path or `hub:SET` stands for.

    SpecError with the nearest name for one that means nothing, LoadError for a file or set that cannot be used.
    """
    said = os.fspath(name)
    whole, mark, category = said.rpartition("#")
    if not mark or os.path.exists(said):  # a # may be part of a file's name
        return _whole(said)
    return _whole(whole).only(category)


def _whole(name: str) -> Workload:
    if name in SUITES:
        return Workload(name, suite(name), "forerun")
    if name.startswith(PREFIX):
        return public(name)
    path = Path(name).expanduser()
    if name and os.path.exists(path):  # unlike Path.exists, False also for what the system takes for no path
        return from_path(path)
    if path.suffix or len(path.parts) > 1:
        raise LoadError(f"no prompt file {name}: give an existing file or folder, or a suite ({', '.join(SUITES)})")
    raise unknown("workload", name, [*SUITES, *(f"{PREFIX}{known}" for known in SETS)])
