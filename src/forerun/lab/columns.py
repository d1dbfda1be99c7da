"""Columns that tables of several experiments have: one head and one way to tell each figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from forerun.lab.views import Table, interval, number

Found = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """The head, and what is told of a row's figures."""

    head: str
    tell: Callable[[Found], str]


def of(head: str, key: str, digits: int = 2) -> Column:
    """A number under a key."""
    return Column(head, lambda f: number(f[key], digits))


def ratio(head: str, key: str, digits: int = 2) -> Column:
    """A value with its interval under a key; a dash where there is none."""
    return Column(head, lambda f: interval(f.get(key), digits))


def share(head: str, key: str) -> Column:
    """A part under a key, as percent."""
    return Column(head, lambda f: "-" if f[key] is None else f"{f[key]:.0%}")


def count(head: str, key: str) -> Column:
    """A whole number under a key, thousands apart."""
    return Column(head, lambda f: f"{f[key]:,}")


def word(head: str, key: str) -> Column:
    """A text or a whole number under a key; a dash where there is none."""
    return Column(head, lambda f: "-" if f[key] is None else str(f[key]))


MS = of("ms/token", "ms_per_token")
RATE = of("tokens/s", "tokens_per_s", 1)
SPEEDUP = ratio("speed-up", "speedup")
ANSWER = ratio("whole answer", "speedup_answer")
VERDICT = Column("verdict", lambda f: f["verdict"] or "-")
TAU = of("tau", "tau")
ACCEPTED = share("accepted", "acceptance")
SAME = Column("same text", lambda f: f"{f['same_text']} of {f['answers']}")


def table(
    title: str, leads: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], Found]], columns: Iterable[Column]
) -> Table:
    """Rows of some first cells, whose heads are `leads`, and what the columns tell of the figures."""
    columns = tuple(columns)
    heads = (*leads, *(column.head for column in columns))
    return Table(title, heads, tuple((*lead, *(column.tell(found) for column in columns)) for lead, found in rows))
