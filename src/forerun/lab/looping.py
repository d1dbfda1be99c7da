"""Answers that repeat themselves, and what is gained without them.

A model that falls into a loop writes what stood before, which any lookup guesses: the gain is large and worth nothing.
An answer loops if at least LOOPS of its 6-grams stood before in the same answer. What it copies from its prompt is no
loop: edits do that, and it is what they are for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from forerun.lab.views import Note, Table, View, interval

GRAM = 6
LOOPS = 0.2
Repeats = tuple[int, int]
"""Of an answer: its 6-grams that stood before in it, and all of them."""


def repeats(answer: Sequence[Hashable]) -> Repeats:
    """Those of an answer, by its tokens or words."""
    grams = [tuple(answer[i : i + GRAM]) for i in range(len(answer) - GRAM + 1)]
    return len(grams) - len(set(grams)), len(grams)


def share(found: Iterable[Repeats]) -> float:
    """The part of the 6-grams of some answers that stood before."""
    pairs = list(found)
    return sum(again for again, _ in pairs) / max(1, sum(count for _, count in pairs))


def loops(found: Iterable[Repeats]) -> bool:
    """Whether an answer, or some together, loop."""
    return share(found) >= LOOPS


def counted(found: Sequence[Repeats]) -> dict[str, Any]:
    """How many answers loop, of how many, and the part of all 6-grams that stood before."""
    return {"answers": sum(loops([one]) for one in found), "of": len(found), "repeated": round(share(found), 4)}


def told(figures: Mapping[str, Any] | None) -> str:
    """`counted`, for people; a dash where it is not known."""
    if not figures:
        return "-"
    return f"{figures['answers']} of {figures['of']}, {figures['repeated']:.0%}"


WHOLE = "whole answer"
MEANS = Note(
    f"looping: answers of which {LOOPS:.0%} of the {GRAM}-grams or more stood before in the same answer, and the part "
    "of all that did; without: the speed-up of the others, for what is easy to guess because it loops is no gain"
)


def with_gains(table: Table, rows: Sequence[Mapping[str, Any] | None]) -> list[View]:
    """A table of speed-ups with what whole answers gain, and where answers loop with how many do and what is gained
    without them. `rows` are the figures of its rows, None for one that is no arm."""
    known = [row or {} for row in rows]
    heads, cells = table.heads, [list(row) for row in table.rows]
    more = {} if WHOLE in heads else {WHOLE: [interval(row.get("speedup_answer")) for row in known]}
    found = [row.get("looping") or {} for row in known]
    looping = any(each.get("answers") for each in found)
    if looping:
        more["looping"] = [told(each) for each in found]
        more["without"] = [interval((each.get("without") or {}).get("speedup")) for each in found]
    for column in more.values():
        for row, cell in zip(cells, column, strict=True):
            row.append(cell)
    whole = Table(table.title, (*heads, *more), tuple(map(tuple, cells)))
    return [whole, MEANS] if looping else [whole]
