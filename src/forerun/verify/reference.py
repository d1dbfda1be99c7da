"""The oracle: any tree of any law, written as the obvious loop over the law.

Slow on purpose and right by inspection; `chain` and `tree` are proved equal to it, verdict by verdict.
"""

from __future__ import annotations

from forerun.core.draft import LAWS, Draft, Tree, Verdict
from forerun.core.noise import Noise, accept_slot, target_slot
from forerun.core.rows import Rows
from forerun.verify.by_tree import by_tree
from forerun.verify.offers import drafted, offers


class Reference:
    """Offers every child in turn and draws from what is left if none stands."""

    name = "reference"
    laws = LAWS
    chains_only = False
    greedy_only = False
    lossless = True

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        return by_tree(self, walk, draft, rows, noise)


def walk(tree: Tree, rows: Rows, b: int, noise: Noise) -> tuple[list[int], int]:
    """The path of tree b that stands, and the token after it."""
    root = rows.position(b, 0) - 1
    children = tree.children()
    path: list[int] = []
    node = 0
    while True:
        left = rows.probs(b, node)
        q = drafted(tree, node, left) if children[node] and tree.law != "chosen" else None
        for child, chance, rest in offers(children[node], tree.tokens, left, q, tree.law):
            if noise.accept(b, accept_slot(root, child), chance):
                path.append(child)
                node = child
                break
            left = rest
        else:
            return path, noise.pick(b, target_slot(rows.position(b, node)), left)
