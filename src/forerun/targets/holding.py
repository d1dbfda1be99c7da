"""What a target holds of one open sequence, and the checks that every forward of any target makes.

Held tokens are for good. Guessed nodes lie behind them until a commit or the next forward that does not keep them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from forerun.core.draft import Tree
from forerun.core.errors import BrokenInvariant, CapacityError
from forerun.core.work import Item

NO_TREE = Tree((), ())


@dataclass(slots=True)
class Holding:
    """Tokens held for good and the tree of guesses fed after them, if any."""

    tokens: list[int]
    tree: Tree = field(default=NO_TREE)

    @property
    def held(self) -> int:
        return len(self.tokens)

    def check(self, item: Item, keep: bool, max_len: int) -> None:
        """Raise unless `item` continues from what is held; CapacityError if it would pass the context."""
        seen = len(self.tree) if keep else 0
        if item.start != self.held or not item.start <= item.stop <= len(item.seq):
            raise BrokenInvariant(
                f"{item.seq} has {self.held} tokens held, the work asks to feed {item.start} to {item.stop}"
            )
        if not 0 <= item.seen <= min(seen, len(item.nodes)) or (item.seen and item.start != item.stop):
            raise BrokenInvariant(f"{item.seq} has {seen} nodes held, the work counts on {item.seen} of them")
        if item.nodes.tokens[: item.seen] != self.tree.tokens[: item.seen]:
            raise BrokenInvariant(f"{item.seq} holds other nodes than the tree that is to grow from them")
        reach = item.stop + (max(item.nodes.depths()) + 1 if item.tree is not None else 0)
        if reach > max_len:
            raise CapacityError(f"the context of {max_len} tokens is full: {item.seq} would reach {reach}; draft less")

    def feed(self, item: Item) -> None:
        """Book a forward over `item`."""
        self.tokens.extend(item.certain)
        self.tree = item.nodes

    def standing(self, path: tuple[int, ...]) -> list[int]:
        """The root and those nodes of the path that were fed."""
        return [node for node in (0, *path) if node < len(self.tree)]

    def settle(self, nodes: list[int]) -> None:
        """Hold those nodes for good, forget the others."""
        self.tokens.extend(self.tree.tokens[node] for node in nodes)
        self.tree = NO_TREE
