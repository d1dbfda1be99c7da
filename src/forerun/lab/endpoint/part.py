"""One arm's block of requests, read back from a run's records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forerun.lab.endpoint.load import Record
from forerun.lab.endpoint.metrics import Counts
from forerun.lab.endpoint.reply import Reply


@dataclass(frozen=True, slots=True)
class Part:
    """One arm's block, read back."""

    key: str
    level: int
    turn: int
    arm: str
    wall_s: float
    cpu_s: float
    quiet: Mapping[str, Any]
    settled: bool
    counts: Counts | None
    records: tuple[Record, ...]
    silence: str = ""
    """Why there are no counts; "" where there are."""
    place: int = 0
    """In the order that was drawn for the arms."""

    @property
    def replies(self) -> list[Reply]:
        """Of the requests that were answered."""
        return [record.reply for record in self.records if record.reply is not None]

    @property
    def smooth(self) -> bool:
        """Whether every request was answered at once: only then the block's time is the server's."""
        return all(record.reply is not None and record.attempts == 1 for record in self.records)

    @property
    def tokens(self) -> int | None:
        """Of all answers; None unless all of them are counted."""
        told = [reply.tokens for reply in self.replies]
        return None if None in told else sum(count or 0 for count in told)
