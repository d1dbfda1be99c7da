"""A batch is judged tree by tree: sequences differ in size, in law and in how they draw, and never meet.

What cannot be judged without changing the target's text is refused here, before any row is looked at.
"""

from __future__ import annotations

from collections.abc import Callable

from forerun.core.draft import Draft, Tree, Verdict
from forerun.core.errors import LossyError
from forerun.core.noise import Noise
from forerun.core.protocols import Verifier
from forerun.core.rows import Rows

Walk = Callable[[Tree, Rows, int, Noise], tuple[list[int], int]]
"""(tree, rows, b, noise) -> the nodes of tree b that stand, from the root down, and the token after them."""


def by_tree(verifier: Verifier, walk: Walk, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
    """The verdict of `walk` on every tree; LossyError if `verifier` cannot judge one of them."""
    for tree in draft.trees:
        fits(verifier, tree)
    judged = [walk(tree, rows, b, noise) for b, tree in enumerate(draft.trees)]
    return Verdict(tuple(tuple(path) for path, _ in judged), tuple(bonus for _, bonus in judged))


def fits(verifier: Verifier, tree: Tree) -> None:
    """Raise LossyError unless `verifier` may judge the tree; the root alone is plain decoding and always fits."""
    if len(tree) == 1:
        return
    if tree.law not in verifier.laws:
        raise LossyError(
            f"verifier {verifier.name!r} cannot judge a draft of law {tree.law!r} (allowed: "
            f"{', '.join(sorted(verifier.laws))}): use 'auto'"
        )
    if verifier.chains_only and not tree.is_chain:
        raise LossyError(
            f"verifier {verifier.name!r} judges chains only, got a tree of {len(tree)} nodes: use 'traversal' or 'auto'"
        )
