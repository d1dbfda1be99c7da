"""A worker's side of the contest: one JSON line in, one out, and asleep in between.

Standard output belongs to the protocol alone: what libraries print goes to standard error.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

TOKENS = 64  # of an answer
CONTEXT = 256  # tokens before it
CACHED, ROWS = 248, 8  # tokens in memory, and rows fed on top of them
PROMPT = 512  # tokens of a long prompt
REPEATS = 5  # of the forwards of a few milliseconds, within a turn


def speak() -> Callable[[object], None]:
    """Take standard output away from everyone else; returns what writes a line to it."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return lambda value: print(json.dumps(value), file=out, flush=True)


def serve(say: Callable[[object], None], tasks: Mapping[str, Callable[[], dict[str, Any]]], facts: object) -> None:
    """Answer each {"task": NAME} with what the task returns, until standard input ends."""
    say({"ready": facts})
    for line in sys.stdin:
        say(tasks[json.loads(line)["task"]]())
