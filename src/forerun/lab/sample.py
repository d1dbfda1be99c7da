"""One answer (or one batch of answers) of one arm: counts and seconds, and the figures of many of them pooled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from forerun.lab.looping import Repeats, loops


@dataclass(frozen=True, slots=True)
class Sample:
    """What was counted. Seconds and steps are those after every answer's first token: prompts are read by then."""

    answers: int
    """Answers that ran at once."""
    tokens: int
    """Tokens of all of them after the step that gave the last of the first tokens."""
    decode_s: float
    first_s: float
    """From the first request to the last first token."""
    cpu_s: float
    """Processor time of the whole process over `decode_s`, all threads."""
    steps: int
    rows: int
    """Rows that the target computed in these steps; those that gave no token were thrown away."""
    phases: Mapping[str, float]
    """Seconds by phase; `rest` is what no phase holds: scheduler, text, the loop itself."""
    emitted: int
    """Tokens from the beginning, and so the counts below."""
    passes: int
    drafted: int
    accepted: int
    tried_at: tuple[int, ...]
    """Steps in which a guess of depth i + 1 was judged: all before it stood."""
    stood_at: tuple[int, ...]
    """Steps in which it stood."""
    digest: str
    """Of all token ids: the same text has the same one."""
    texts: tuple[str, ...] = field(default=(), compare=False)
    """The answers, not written to files; and their tokens."""
    ids: tuple[tuple[int, ...], ...] = field(default=(), compare=False)
    by_rows: tuple[tuple[int, int, float], ...] = ()
    """(rows, steps, seconds of their forwards), where an arm tells forwards apart by their size."""
    repeats: tuple[Repeats, ...] = ()
    """How far each answer repeats itself; () of files that do not tell."""

    @property
    def loops(self) -> bool:
        """Whether these answers, together, do little but repeat themselves."""
        return loops(self.repeats)

    @property
    def ms_per_token(self) -> float | None:
        """Milliseconds a token of one answer; None where the first step was all."""
        return 1e3 * self.decode_s * self.answers / self.tokens if self.tokens else None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second of all answers together."""
        return self.tokens / self.decode_s if self.tokens else None

    def to_json(self) -> dict[str, Any]:
        """All but the answers themselves."""
        value = asdict(self)
        del value["texts"], value["ids"]
        return {**value, "phases": {name: round(seconds, 7) for name, seconds in self.phases.items()}}


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of several samples, pooled: rates of sums, never means of rates."""

    emitted: int
    passes: int
    drafted: int
    accepted: int
    tried_at: tuple[int, ...]
    stood_at: tuple[int, ...]

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Counts:
        """The sum over samples."""
        emitted, passes = sum(s.emitted for s in samples), sum(s.passes for s in samples)
        drafted, accepted = sum(s.drafted for s in samples), sum(s.accepted for s in samples)
        tried, stood = summed([s.tried_at for s in samples]), summed([s.stood_at for s in samples])
        return cls(emitted, passes, drafted, accepted, tried, stood)

    @property
    def tau(self) -> float | None:
        """Tokens per target pass, bonus included."""
        return self.emitted / self.passes if self.passes else None

    @property
    def acceptance(self) -> float | None:
        """Accepted of drafted; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def by_position(self) -> list[float]:
        """The part of the guesses judged at each depth that stood."""
        return [stood / tried for tried, stood in zip(self.tried_at, self.stood_at, strict=True) if tried]


def summed(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Column sums of rows of different lengths."""
    longest = max(map(len, rows), default=0)
    return tuple(sum(row[i] for row in rows if i < len(row)) for i in range(longest))


def digest(answers: Sequence[Sequence[int]]) -> str:
    """A short name of token ids."""
    return hashlib.sha256(repr([list(ids) for ids in answers]).encode()).hexdigest()[:16]


def parts_at(one: Sequence[object], other: Sequence[object]) -> int | None:
    """From where two answers (tokens or characters) differ; None if they are the same."""
    if one == other:
        return None
    same = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(same) if a != b), min(len(one), len(other)))
