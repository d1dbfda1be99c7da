"""Block verification: a chain is judged as a whole (Sun et al., 2403.10444).

A token that the target likes more than the drafter did pays for a later one that it likes less, so more of a
chain stands than token by token, and no lossless rule for chains keeps more. One token deep it is the
token-level rule. The longest prefix that passes its own test is kept, tests run from the deepest up;
E[accepted] is the sum of the weights.
"""

from __future__ import annotations

from torch import Tensor

from forerun.core.draft import LAWS, Draft, Tree, Verdict
from forerun.core.noise import Noise, accept_slot, target_slot
from forerun.core.rows import Rows
from forerun.verify.by_tree import by_tree
from forerun.verify.offers import drafted, odds, one_hot, residual, reweighed


class Block:
    """The longest prefix of a chain that any lossless rule can expect to keep."""

    name = "block"
    laws = LAWS
    chains_only = True
    greedy_only = False
    lossless = True

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        return by_tree(self, walk, draft, rows, noise)


def walk(tree: Tree, rows: Rows, b: int, noise: Noise) -> tuple[list[int], int]:
    """The nodes of chain b that stand, and the token after them."""
    root = rows.position(b, 0) - 1
    weights, laws = descend(tree, rows, b)
    node = len(weights) - 1
    if node == len(tree) - 1:
        if node == 0 or noise.accept(b, accept_slot(root, node), weights[node]):
            return list(range(1, node + 1)), rows.pick(b, node, noise)
        node -= 1
    while True:
        rest, mass = residual(*laws[node], weights[node])
        if node == 0 or noise.accept(b, accept_slot(root, node), reweighed(mass, weights[node])):
            return list(range(1, node + 1)), noise.pick(b, target_slot(root + node + 1), rest)
        node -= 1


def descend(tree: Tree, rows: Rows, b: int) -> tuple[list[float], list[tuple[Tensor, Tensor]]]:
    """Weights of the nodes down to the last that is possible, and (p, q) below each that has a child.

    Below a weight of 0 no prefix can stand, and the target may have no row there.
    """
    weights = [1.0]
    laws: list[tuple[Tensor, Tensor]] = []
    for node, token in enumerate(tree.tokens[1:]):
        p = rows.probs(b, node)
        q = one_hot(token, p) if tree.law == "chosen" else drafted(tree, node, p)
        laws.append((p, q))
        weight = min(1.0, weights[node] * odds(p, q, token))
        if weight == 0.0:
            break
        weights.append(weight)
    return weights, laws
