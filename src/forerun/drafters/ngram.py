"""Prompt lookup: what followed the last time these words were said.

The longest match of the text's end with an earlier place wins, the most recent among equals, and what followed there is
proposed. A match that overlaps the end goes on reading from its own draft, so a period is carried on. After Saxena,
"Prompt Lookup Decoding" (2023), which takes the first match; the latest is better where text is being edited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forerun.core.draft import Draft, Law, Tree, Verdict
from forerun.core.noise import Noise
from forerun.core.plan import Plan
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.drafters.index import Occurrences
from forerun.drafters.ranges import number, ordered, whole


@dataclass(frozen=True, slots=True)
class NgramOptions:
    """How to look up. SpecError for values out of range."""

    min: int = 2
    """Shortest match that is believed, in tokens, 1..16."""
    max: int = 32
    """Tokens that are compared; longer matches count as this long."""
    candidates: int = 64
    """Newest places looked at in a step; the place that the last draft was read from is always looked at too."""
    factor: float = 1.0
    """A match of m tokens drafts at most factor * m + offset: short matches seldom carry far."""
    offset: float = 1.0
    """See `factor`."""

    def __post_init__(self) -> None:
        whole(self, "min", 1, 16)
        whole(self, "max", 1, 1024)
        ordered(self, "min", "max")
        whole(self, "candidates", 1, 4096)
        number(self, "factor", 0.0, 256.0)
        number(self, "offset", 0.0, 256.0)


@dataclass(slots=True)
class _Reading:
    """One sequence's index, and where its last draft was read when the text was how long."""

    index: Occurrences
    place: int = -1
    length: int = 0


class NgramDrafter:
    """Chains copied from the sequence's own text; a step's work does not grow with the text."""

    name = "ngram"
    Options = NgramOptions
    laws: frozenset[Law] = frozenset({"chosen"})
    taps: tuple[int, ...] = ()

    def __init__(self, options: NgramOptions | None = None) -> None:
        self.options = options or NgramOptions()
        self._readings: dict[Seq, _Reading] = {}

    def begin(self, seq: Seq) -> None:
        """Index the text; nothing of another sequence is ever proposed."""
        self._readings[seq] = _Reading(Occurrences(seq.tokens, self.options.min))

    def read(self, rows: Rows) -> None:
        """No taps."""

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """A chain for each sequence, or its root where nothing matches."""
        return Draft(tuple(self._chain(seq, plan) for seq in seqs))

    def _chain(self, seq: Seq, plan: Plan) -> Tree:
        reading = self._readings[seq]
        reading.index.update()
        place, agreed = self._longest(reading, seq)
        reading.place, reading.length = place, len(seq)
        if place < 0:
            return Tree.root(seq.last)
        reach = int(self.options.factor * agreed + self.options.offset + 1e-6)
        return Tree.chain(seq.last, follow(seq.tokens, place, min(plan.depth, plan.nodes, seq.room, reach)))

    def _longest(self, reading: _Reading, seq: Seq) -> tuple[int, int]:
        """Place and length of the best match, (-1, 0) if there is none."""
        options = self.options
        hint = reading.place + len(seq) - reading.length if reading.place > 0 else -1
        return reading.index.longest(seq.tokens, options.candidates, options.max, hint)

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """Nothing to learn: the next draft reads the grown text."""

    def end(self, seq: Seq) -> None:
        """Forget the text."""
        self._readings.pop(seq, None)


def follow(tokens: Sequence[int], place: int, count: int) -> list[int]:
    """`count` tokens from `place` on; past the end of `tokens` what was read is read again."""
    read = list(tokens[place : place + count])
    return [read[i % len(read)] for i in range(count)]
