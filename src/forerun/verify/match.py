"""Matching: draw what plain decoding would draw, and go down while the drafter guessed it.

Only the target's draws are emitted, so it is lossless for any tree, even one made with those draws in view
(`foreseen`), and the best there is for `chosen` ones, where it accepts as much as rejection does. The draw
depends on (seed, position) alone: one seed, one text, whatever is drafted. At temperature 0 it is the argmax walk.
"""

from __future__ import annotations

from forerun.core.draft import ALL_LAWS, Draft, Tree, Verdict
from forerun.core.noise import Noise
from forerun.core.rows import Rows
from forerun.verify.by_tree import by_tree


class Match:
    """Same seed, same text, with speculation on or off."""

    name = "match"
    laws = ALL_LAWS
    chains_only = False
    greedy_only = False
    lossless = True

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        return by_tree(self, walk, draft, rows, noise)


def walk(tree: Tree, rows: Rows, b: int, noise: Noise) -> tuple[list[int], int]:
    """The path of tree b that the target's own draws take, and the draw that left it.

    One pass over the nodes: parents come first, so the children of a node are all still ahead when it is
    reached. Among twins (a `sampled` draft may repeat a sibling) the first is taken.
    """
    path: list[int] = []
    node, token, tokens = 0, rows.pick(b, 0, noise), tree.tokens
    for child, parent in enumerate(tree.parents):
        if parent == node and tokens[child] == token:
            path.append(child)
            node, token = child, rows.pick(b, child, noise)
    return path, token
