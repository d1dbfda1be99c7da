"""A worker's side of the talk: one JSON line in, one out, and asleep in between.

Arguments: the path of a module whose `opened(settings)` loads a model and returns (facts, tasks by name), and the
settings as JSON. Standard output belongs to the protocol: what libraries print goes to standard error.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

Task = Callable[..., dict[str, Any]]


def speak() -> Callable[[object], None]:
    """Take standard output away from everyone else; returns what writes a line to it."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # which writes every line at once, whatever the process at the other end is
    return lambda value: print(json.dumps(value), file=out, flush=True)


def tasks_of(path: str, settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Task]]:
    """What the module at `path` opens."""
    spec = importlib.util.spec_from_file_location("peer", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    facts, tasks = module.opened(settings)
    return facts, tasks


def main() -> None:
    """Load, say what is there, and answer each {"task": NAME, …} until standard input ends."""
    say = speak()
    facts, tasks = tasks_of(sys.argv[1], json.loads(sys.argv[2]))
    say({"ready": facts})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = tasks[request.pop("task")](**request)
        except Exception as error:  # the asker decides what becomes of it
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        say(reply)


if __name__ == "__main__":
    main()
