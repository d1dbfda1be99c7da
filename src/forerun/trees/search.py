"""The static tree of so many nodes that is most often right, by measured accuracies (Cai et al. 2401.10774).

A node's worth is the chance that it stands: the product, along its path, of how often a draft's rank is the target's
word given that all before it were. Ranks are worth less the later they come, so the best nodes form a tree.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

from forerun.core.errors import SpecError
from forerun.trees.shape import Path_, Shape

Chances = Sequence[Sequence[float]]
"""[depth][rank]: how often that rank of a node at that depth's children is right, given that the node is; depth 0 is of
the root's children. The last row stands for all deeper ones."""


def check_chances(chances: Chances) -> None:
    """SpecError unless these are chances: each in [0, 1], no depth's above 1 together, none rising with rank."""
    if not chances or not all(chances):
        raise SpecError("chances need at least one depth with one rank")
    for depth, row in enumerate(chances):
        rising = any(b > a + 1e-12 for a, b in pairwise(row))
        if min(row) < 0 or sum(row) > 1 + 1e-9 or rising:
            raise SpecError(
                f"chances at depth {depth} must be from 0 to 1, not rise with rank and be at most 1 together, "
                f"got {[round(value, 4) for value in row]}"
            )


def of_depth(chances: Chances, depth: int) -> Sequence[float]:
    """The chances of the children of a node at `depth`."""
    return chances[min(depth, len(chances) - 1)]


def search(chances: Chances, nodes: int, depth: int) -> Shape:
    """The `nodes` likeliest nodes down to `depth`; among equals the one that is found first."""
    check_chances(chances)
    found: list[Path_] = []
    frontier: list[tuple[float, int, Path_]] = []
    pushed = 0

    def push(worth: float, path: Path_) -> None:
        nonlocal pushed
        if worth > 0:
            heapq.heappush(frontier, (-worth, pushed, path))
            pushed += 1

    if depth > 0:
        push(of_depth(chances, 0)[0], (0,))
    while frontier and len(found) < nodes:
        negative, _, path = heapq.heappop(frontier)
        found.append(path)
        level, row = len(path) - 1, of_depth(chances, len(path) - 1)
        if path[-1] + 1 < len(row):
            push(-negative / row[path[-1]] * row[path[-1] + 1], (*path[:-1], path[-1] + 1))
        if level + 1 < depth:
            push(-negative * of_depth(chances, level + 1)[0], (*path, 0))
    return Shape.of(found)


def expected(shape: Shape, chances: Chances) -> float:
    """Expected tokens of a step with this tree, the target's own included."""
    worth: dict[Path_, float] = {(): 1.0}
    for path in shape.paths:
        row = of_depth(chances, len(path) - 1)
        worth[path] = worth[path[:-1]] * (row[path[-1]] if path[-1] < len(row) else 0.0)
    return sum(worth.values())
