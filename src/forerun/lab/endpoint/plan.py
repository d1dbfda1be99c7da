"""What is asked, of whom and in which order: conversations in blocks, every arm on each block before the next one."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from forerun.core.errors import LoadError, SpecError
from forerun.lab.endpoint.request import Form
from forerun.workloads.workload import Workload

AGAIN = " again"  # behind the first model's name: the same model asked once more, the noise floor
PREFIXES = ("cold", "warm")
Prefix = Literal["cold", "warm"]
_WINDOWS = 2  # blocks hold so many times the requests that run at once, so that half of a block runs at full load

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Arm:
    """One model as it is asked; `again` marks the second run of the first one."""

    model: str
    form: Form
    again: bool = False

    @property
    def name(self) -> str:
        """In figures."""
        return self.model + (AGAIN if self.again else "")


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation: its turns, and for each what the answer is expected to be (or None)."""

    id: str
    turns: tuple[str, ...]
    predictions: tuple[str | None, ...]


def talks(workloads: Sequence[Workload], turns: int | None, predictions: str | None) -> list[Talk]:
    """All conversations; `predictions` is None, `reference`, or a file: JSON lines of {"id", "prediction"}, or one
    text for all. SpecError where a prompt has none."""
    told = _told(predictions) if predictions not in (None, "reference") else {}
    found = []
    for work in workloads:
        for prompt in work.prompts:
            said = prompt.turns[:turns]
            expected: tuple[str | None, ...] = (None,) * len(said)
            if predictions is not None:
                known = prompt.reference if predictions == "reference" else told.get(prompt.id, told.get("*", ()))
                if len(known) < len(said):
                    raise SpecError(
                        f"--prediction-from {predictions}: prompt {prompt.id!r} of {work.name} has {len(said)} turns "
                        f"and {len(known)} known answers: take fewer --turns, another workload, or a file of them"
                    )
                expected = tuple(known[: len(said)])
            found.append(Talk(f"{work.name}/{prompt.id}", said, expected))
    return found


def _told(name: str | None) -> Mapping[str, tuple[str, ...]]:
    path = Path(str(name)).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"--prediction-from takes `reference` or a text file, {name} cannot be read: {error}") from None
    if path.suffix != ".jsonl":
        return {"*": (text,)}
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                entry = json.loads(line)
                found[str(entry["id"])] = (str(entry["prediction"]),)
            except (ValueError, KeyError, TypeError):
                raise LoadError(f'{name}, line {number}: expected {{"id": …, "prediction": …}}') from None
    return found


def blocks(items: Sequence[T], at_once: int) -> list[Sequence[T]]:
    """`items` in blocks that keep `at_once` requests running; one by one where only one runs.

    SpecError if there are fewer items than should run at once.
    """
    if at_once > len(items):
        raise SpecError(
            f"{at_once} requests at once need as many prompts, there are {len(items)}: give more with --prompts or "
            f"--workload, or a lower --concurrency"
        )
    size = 1 if at_once == 1 else _WINDOWS * at_once
    count = max(1, len(items) // size)
    return [items[len(items) * i // count : len(items) * (i + 1) // count] for i in range(count)]


def order(arms: Sequence[Arm], key: str, seed: int) -> list[Arm]:
    """All arms, in an order drawn for this unit."""
    return random.Random(f"{seed}/{key}").sample(list(arms), len(arms))


def mark(*facts: object) -> str:
    """A short line of its own for these facts: put before a prompt, no server has the prompt in its cache."""
    return f"({hashlib.sha256(repr(facts).encode()).hexdigest()[:12]})\n"
