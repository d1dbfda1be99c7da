"""The tree that gives most tokens per second on one machine: how many nodes, how deep, of what shape, or none at all.

Sequoia's dynamic programme (Chen et al. 2402.12374) gives for every number of nodes and depth the shape with most
expected tokens. It knows what the target's forward costs; a drafter that reads its own guesses also takes a forward for
each level, one after another, so depth costs as much as nodes do, and both are chosen against measured seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from forerun.core.errors import SpecError
from forerun.trees.search import Chances, check_chances, of_depth
from forerun.trees.shape import Path_, Shape


@dataclass(frozen=True, slots=True)
class Best:
    """A tree, expected tokens of a step with it, and seconds of that step; an empty shape is plain decoding."""

    shape: Shape
    tokens: float
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


def best_tree(chances: Chances, target: Mapping[int, float], draft: Callable[[int], float], depth: int = 16) -> Best:
    """The best tree of at most `depth` levels.

    `target` are seconds of the target's forward by rows, the root counted, and must have 1; only trees whose rows were
    measured are looked at. `draft(levels)` are seconds of drafting so many levels. SpecError for chances or times that
    cannot be.
    """
    check_chances(chances)
    if 1 not in target or min(target.values()) <= 0:
        raise SpecError("the target's seconds are needed for 1 row, and above 0 for all")
    best = Best(Shape(()), 1.0, target[1])
    most = max(target)
    for levels in range(1, depth + 1):
        grow = _programme(chances, most, levels)
        for rows in sorted(target):
            if rows <= levels:  # a smaller depth has this tree
                continue
            tokens, shape = grow(rows)
            seconds = target[rows] + draft(levels)
            if shape.depth == levels and tokens / seconds > best.tokens_per_s:
                best = Best(shape, tokens, seconds)
    return best


def _programme(chances: Chances, most: int, levels: int) -> Callable[[int], tuple[float, Shape]]:
    """For trees of up to `most` rows and `levels` levels: rows -> (expected tokens, shape)."""

    @cache
    def subtree(depth: int, rows: int) -> tuple[float, tuple[Path_, ...]]:
        """The best under a node at `depth` that stands, itself a row: tokens and paths below it."""
        if depth == levels or rows == 1:
            return 1.0, ()
        tokens, paths = children(depth, 0, rows - 1)
        return 1.0 + tokens, paths

    @cache
    def children(depth: int, rank: int, rows: int) -> tuple[float, tuple[Path_, ...]]:
        """The best use of `rows` rows for the children from `rank` on of a node at `depth`."""
        row = of_depth(chances, depth)
        if rows == 0 or rank == len(row) or row[rank] == 0:
            return 0.0, ()
        best, paths = 0.0, tuple[Path_, ...]()
        for own in range(1, rows + 1):
            below, inside = subtree(depth + 1, own)
            after, others = children(depth, rank + 1, rows - own)
            tokens = row[rank] * below + after
            if tokens > best + 1e-15:
                best, paths = tokens, ((rank,), *((rank, *path) for path in inside), *others)
        return best, paths

    def grow(rows: int) -> tuple[float, Shape]:
        tokens, paths = subtree(0, rows)
        return tokens, Shape(paths)

    return grow
