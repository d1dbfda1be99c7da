"""What a target is asked to do in one forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forerun.core.draft import Tree
from forerun.core.seq import Seq

_NO_TREE = Tree((), ())


@dataclass(frozen=True, slots=True)
class Item:
    """One sequence's part of a forward: certain tokens first, then a tree of guesses under the last one.

    `seq.tokens[start:stop]` are fed and held for good, no rows wanted. Then, if there is a tree (its root is
    `seq.tokens[stop]`, the newest token), its nodes from `seen` on are fed and get a row each; nodes before `seen` are
    still held from an earlier forward with `keep`. `start` is what the target holds of the sequence.
    """

    seq: Seq
    start: int
    stop: int
    tree: Tree | None = None
    seen: int = 0

    @property
    def nodes(self) -> Tree:
        """The tree, or an empty one."""
        return self.tree or _NO_TREE

    @property
    def certain(self) -> Sequence[int]:
        """Tokens that are fed for good."""
        return self.seq.tokens[self.start : self.stop]

    @property
    def fresh(self) -> int:
        """Nodes that this forward must feed."""
        return len(self.nodes) - self.seen


Work = Sequence[Item]
"""Items of one forward, each sequence at most once."""
