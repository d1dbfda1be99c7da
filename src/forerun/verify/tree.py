"""Recursive rejection on a tree, from the root down, child after child.

Without replacement for `distinct` children (EAGLE-1, Sequoia 2402.12374), with it for `sampled` ones
(SpecInfer's multi-step rule, 2305.09781), and with one-hot q for `chosen` ones. Equal to the oracle, without
its waste: a residual is computed only after a refusal, and chosen children cost one look at the row.
"""

from __future__ import annotations

from torch import Tensor

from forerun.core.draft import LAWS, Draft, Tree, Verdict
from forerun.core.noise import Noise, accept_slot, target_slot
from forerun.core.rows import Rows
from forerun.verify.by_tree import by_tree
from forerun.verify.offers import drafted, odds, residual, without


class TreeRejection:
    """Rejection sampling at each node of the path, for any tree."""

    name = "tree"
    laws = LAWS
    chains_only = False
    greedy_only = False
    lossless = True

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        return by_tree(self, walk, draft, rows, noise)


def walk(tree: Tree, rows: Rows, b: int, noise: Noise) -> tuple[list[int], int]:
    """The path of tree b that stands, and the token after it."""
    root = rows.position(b, 0) - 1
    offer = _chosen if tree.law == "chosen" else _drawn
    children = tree.children()
    path: list[int] = []
    node = 0
    while children[node]:
        child, left = offer(tree, node, children[node], rows.probs(b, node), b, root, noise)
        if child is None:
            return path, noise.pick(b, target_slot(root + 1 + len(path)), left)
        path.append(child)
        node = child
    return path, rows.pick(b, node, noise)


def _drawn(
    tree: Tree, node: int, children: list[int], p: Tensor, b: int, root: int, noise: Noise
) -> tuple[int | None, Tensor]:
    """The child that stands, or None and the row that is left, where chance made the children."""
    q = drafted(tree, node, p)
    for child in children:
        token = tree.tokens[child]
        if noise.accept(b, accept_slot(root, child), min(1.0, odds(p, q, token))):
            return child, p
        p, _ = residual(p, q)
        if tree.law == "distinct" and child != children[-1]:
            q = without(q, token)
    return None, p


def _chosen(
    tree: Tree, node: int, children: list[int], p: Tensor, b: int, root: int, noise: Noise
) -> tuple[int | None, Tensor]:
    """The child that stands, or None and the row that is left, where a rule chose the children.

    A refusal only takes its token out of the row, so all is known from the children's own probabilities.
    """
    tokens = [tree.tokens[child] for child in children]
    probs: list[float] = p[tokens].tolist()
    mass = 1.0
    seen: set[int] = set()
    for child, token, prob in zip(children, tokens, probs, strict=True):
        chance = 0.0 if token in seen else (1.0 if prob >= mass else prob / mass)
        if noise.accept(b, accept_slot(root, child), chance):
            return child, p
        if token not in seen:
            seen.add(token)
            mass = max(mass - prob, 0.0)
    left = p.clone()
    left[tokens] = 0.0
    return None, left if bool(left.any()) else p
