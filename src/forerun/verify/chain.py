"""Token-level rejection on a chain: each drafted token stands with chance min(1, p/q).

The classic (Leviathan et al. 2211.17192, Chen et al. 2302.01318), equal to the oracle; `block` accepts more
of the same chain. A chain's only child is drawn alike under `sampled` and `distinct`, and a `chosen` one has
a one-hot q.
"""

from __future__ import annotations

from forerun.core.draft import LAWS, Draft, Tree, Verdict
from forerun.core.noise import Noise, accept_slot, target_slot
from forerun.core.rows import Rows
from forerun.verify.by_tree import by_tree
from forerun.verify.offers import drafted, odds, one_hot, residual


class TokenLevel:
    """Rejection sampling token by token, for chains."""

    name = "token"
    laws = LAWS
    chains_only = True
    greedy_only = False
    lossless = True

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        return by_tree(self, walk, draft, rows, noise)


def walk(tree: Tree, rows: Rows, b: int, noise: Noise) -> tuple[list[int], int]:
    """The nodes of chain b that stand, and the token after them."""
    last = len(tree) - 1
    root = rows.position(b, 0) - 1
    for node in range(last):
        token = tree.tokens[node + 1]
        p = rows.probs(b, node)
        q = one_hot(token, p) if tree.law == "chosen" else drafted(tree, node, p)
        if not noise.accept(b, accept_slot(root, node + 1), min(1.0, odds(p, q, token))):
            rest, _ = residual(p, q)
            return list(range(1, node + 1)), noise.pick(b, target_slot(root + node + 1), rest)
    return list(range(1, last + 1)), rows.pick(b, last, noise)
