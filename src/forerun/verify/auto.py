"""The best lossless rule for each tree.

Chosen trees are matched: nothing accepts more of them, and the seed keeps its text. So are greedy sequences,
whatever they were drafted by, since there is nothing to draw. Chains that chance made go to block
verification, trees to traversal.
"""

from __future__ import annotations

from forerun.core.draft import ALL_LAWS, Draft, Tree, Verdict
from forerun.core.noise import Noise
from forerun.core.rows import Rows
from forerun.verify import block, match, traversal
from forerun.verify.by_tree import by_tree


class Auto:
    """Match, block or traversal, as the tree asks."""

    name = "auto"
    laws = ALL_LAWS
    chains_only = False
    greedy_only = False
    lossless = True

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        return by_tree(self, walk, draft, rows, noise)


def walk(tree: Tree, rows: Rows, b: int, noise: Noise) -> tuple[list[int], int]:
    """The path of tree b that stands, and the token after it."""
    if not tree.drawn or rows.items[b].seq.params.greedy:
        return match.walk(tree, rows, b, noise)
    return block.walk(tree, rows, b, noise) if tree.is_chain else traversal.walk(tree, rows, b, noise)
