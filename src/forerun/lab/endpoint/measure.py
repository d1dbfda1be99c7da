"""The same prompts, asked of every model in turn at equal concurrency.

A unit is a block of conversations at one concurrency in one round: every arm answers it, in an order drawn for the
unit, and the first model answers twice, which gives the noise floor. Before an arm's turn the server must be idle; its
counters are read before and after. Later turns are asked with the first model's answers before them, so that all arms
read the same.

A prompt asked twice is found in the server's cache the second time. So by default (`cold`) each begins with a short
line that no other request of the run has in front; with `warm` every prompt is read once, uncounted, before its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from forerun.core.errors import LoadError
from forerun.lab.endpoint.plan import Talk, blocks
from forerun.lab.endpoint.session import Recount, Session
from forerun.lab.endpoint.setup import Setup, Told
from forerun.lab.run import Run


def measure(
    run: Run, setup: Setup, talked: Sequence[Talk], recount: Recount | None = None
) -> tuple[Told, list[dict[str, Any]]]:
    """Every unit's record, one for each arm, turn and block: see `Session.unit`.

    SpecError for what cannot be asked, LoadError for a server that cannot be measured.
    """
    plan = [
        (f"{level}/{turn_around}/{number}", level, part)
        for level in setup.levels
        for turn_around in range(setup.rounds)
        for number, part in enumerate(blocks(talked, level))
    ]
    with asyncio.Runner() as loop:
        session = loop.run(Session.open(setup, recount))
        try:
            parts = []
            for key, level, part in run.track(plan, "blocks"):

                def unit(key: str = key, level: int = level, part: Sequence[Talk] = part) -> list[dict[str, Any]]:
                    return loop.run(session.unit(key, level, part))

                parts += run.unit(key, unit)
            _answered(parts)
            return session.told, parts
        finally:
            loop.run(session.server.close())


def _answered(parts: Sequence[Mapping[str, Any]]) -> None:
    """LoadError for a model that answered nothing at some concurrency: there is nothing to say of it."""
    whole: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for part in parts:
        whole.setdefault((part["arm"], part["level"]), []).extend(part["records"])
    for (arm, level), records in whole.items():
        if all(record["reply"] is None for record in records):
            why = records[0]["fault"]
            raise LoadError(f"{arm}, {level} at once: none of {len(records)} requests was answered: {why}")
