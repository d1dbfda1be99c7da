"""Verifiers that are wrong in the ways people get them wrong, to see that the checks notice.

    odds       a drawn token stands with chance p, not p/q: likely drafts are refused too often
    residual   after a refusal the token is drawn from p, not from what of it the drafter left uncovered
    siblings   a second child is judged by the rows as they were before the first was refused

Each says that it is lossless, as its author would.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from forerun.core.draft import LAWS, Draft, Tree, Verdict
from forerun.core.errors import unknown
from forerun.core.noise import Noise, accept_slot, target_slot
from forerun.core.rows import Rows
from forerun.verify.by_tree import by_tree
from forerun.verify.offers import drafted, odds, one_hot, residual, without

FAULTS = ("odds", "residual", "siblings")


class Sabotaged:
    """Recursive rejection, as in `verify/reference.py`, with one fault; SpecError for a fault that is not known."""

    laws = LAWS
    chains_only = False
    greedy_only = False
    lossless = True

    def __init__(self, fault: str) -> None:
        if fault not in FAULTS:
            raise unknown("sabotage", fault, FAULTS)
        self.name = f"sabotaged:{fault}"
        walk = cast(Callable[[Tree, Rows, int, Noise], tuple[list[int], int]], partial(_walk, fault))
        self._walk = walk

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        return by_tree(self, self._walk, draft, rows, noise)


def _walk(fault: str, tree: Tree, rows: Rows, b: int, noise: Noise) -> tuple[list[int], int]:
    root, children = rows.position(b, 0) - 1, tree.children()
    path: list[int] = []
    node = 0
    while True:
        p = left = rows.probs(b, node)
        q = drafted(tree, node, p) if children[node] and tree.drawn else None
        for child in children[node]:
            token = tree.tokens[child]
            against = one_hot(token, p) if q is None else q
            judged = p if fault == "siblings" else left
            chance = float(judged[token]) if fault == "odds" else odds(judged, against, token)
            if noise.accept(b, accept_slot(root, child), min(1.0, chance)):
                path.append(child)
                node = child
                break
            left, _ = residual(left, against)
            if tree.law == "distinct" and fault != "siblings":
                q = without(against, token)
        else:
            return path, noise.pick(b, target_slot(rows.position(b, node)), p if fault == "residual" else left)
