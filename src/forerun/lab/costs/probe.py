"""EAGLE's automatic node count: how many rows a forward of this machine takes best, whatever is accepted.

The original (`total_token=-1`) times 20 forwards of 40, 48, 50, 56 and 60 tokens, divides by 1, 1.05, 1.07, 1.1 and
1.13, and takes the length with the least: the root and that many nodes but one. Depth is left alone, and no draft is
looked at. Ours times the same lengths as the cost curve does, interleaved and by medians, so a busy moment does not
decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from forerun.core.protocols import Target
from forerun.costs.curve import Point
from forerun.lab.costs.curve import Grid, measure

CANDIDATES = {40: 1.0, 48: 1.05, 50: 1.07, 56: 1.1, 60: 1.13}
"""Rows, and by how much more than 40 rows they may cost to be as good."""
FORWARDS = 20


@dataclass(frozen=True, slots=True)
class Probed:
    """Milliseconds of a forward by rows, and the choice."""

    ms: dict[int, float]

    @property
    def rows(self) -> int:
        """The length with the least time for its weight; the first of equals."""
        return min(CANDIDATES, key=lambda rows: self.ms[rows] / CANDIDATES[rows])

    @property
    def nodes(self) -> int:
        """Drafted nodes of a tree, its root not counted."""
        return self.rows - 1

    def to_json(self) -> dict[str, object]:
        """As JSON values."""
        return {"nodes": self.nodes, "ms_by_rows": {str(rows): round(ms, 4) for rows, ms in self.ms.items()}}


def probe(target: Target, forwards: int = FORWARDS) -> Probed | None:
    """Time the candidates on `target`; None where its context is too short for them."""
    if target.spec.max_len < 1 + max(CANDIDATES):
        return None
    grid = Grid(rows=tuple(CANDIDATES), contexts=(1,), repeats=forwards)
    samples = measure(target, grid)
    return Probed({rows: 1e3 * median(samples.seconds[Point(rows, 1, 1)]) for rows in CANDIDATES})
