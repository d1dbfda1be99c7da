"""Traversal verification: a tree is judged from its leaves up (Weng et al., 2505.12398).

What block verification is to a chain: on one branch the two are the same rule, and on a tree it keeps more
than recursive rejection. Each node carries a weight, the chance that the path to it stands, capped at 1; a
leaf is tested with its weight, and a refused leaf leaves its parent with a residual row and a new weight, and
one child less.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from forerun.core.draft import LAWS, Draft, Tree, Verdict
from forerun.core.noise import Noise, accept_slot, target_slot
from forerun.core.rows import Rows
from forerun.verify.by_tree import by_tree
from forerun.verify.offers import drafted, odds, one_hot, residual, reweighed, without


class Traversal:
    """Bottom-up verification, for any tree."""

    name = "traversal"
    laws = LAWS
    chains_only = False
    greedy_only = False
    lossless = True

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        return by_tree(self, walk, draft, rows, noise)


@dataclass(slots=True)
class _Node:
    """A node on the way down: its weight, the children still to be judged, and its rows once needed."""

    node: int
    weight: float
    children: list[int]
    p: Tensor | None = None
    q: Tensor | None = None


def walk(tree: Tree, rows: Rows, b: int, noise: Noise) -> tuple[list[int], int]:
    """The path of tree b that stands, and the token after it."""
    root = rows.position(b, 0) - 1
    children = tree.children()
    way = [_Node(0, 1.0, children[0])]
    while True:
        here = way[-1]
        if here.children and here.weight > 0.0:  # below a weight of 0 the target may have no rows
            child = here.children[0]
            way.append(_Node(child, _weigh(here, tree, rows, b), children[child]))
        elif len(way) == 1 or noise.accept(b, accept_slot(root, here.node), here.weight):
            path = [step.node for step in way[1:]]
            if here.p is None:
                return path, rows.pick(b, here.node, noise)
            return path, noise.pick(b, target_slot(root + len(way)), here.p)
        else:
            way.pop()
            _refuse(way[-1], tree)


def _weigh(here: _Node, tree: Tree, rows: Rows, b: int) -> float:
    """The weight of the first child still to be judged, with the rows of `here` made ready."""
    token = tree.tokens[here.children[0]]
    if here.p is None:
        here.p = rows.probs(b, here.node)
    if tree.law == "chosen":
        here.q = one_hot(token, here.p)
    elif here.q is None:
        here.q = drafted(tree, here.node, here.p)
    return min(1.0, here.weight * odds(here.p, here.q, token))


def _refuse(here: _Node, tree: Tree) -> None:
    """Take the first child from `here`: its weight and rows become what they are for the others."""
    assert here.p is not None
    assert here.q is not None
    token = tree.tokens[here.children[0]]
    here.children = here.children[1:]
    here.p, mass = residual(here.p, here.q, here.weight)
    here.weight = reweighed(mass, here.weight)
    if tree.law == "distinct" and here.children:
        here.q = without(here.q, token)
