"""Drafts: what a drafter proposes, always as token trees.

A chain is a tree with one branch and plain decoding is the root alone, so the engine has one loop and the verifiers one
contract. Node 0 is the root: the last token of the sequence, already decided. Row n of anything is about the token
*after* node n, for the drafter's probabilities and for the target's alike, so p and q align with no shifting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from torch import Tensor

from forerun.core.errors import BrokenInvariant

Law = Literal["sampled", "distinct", "chosen", "foreseen"]
"""How siblings came to be; verification is lossless only if told the truth.

sampled   drawn independently from the drafter's distribution
distinct  drawn from it without replacement, in order
chosen    picked by rule (top-k, n-gram, prediction): chance had no part, no probabilities are needed
foreseen  picked with the target's own draws to come in view: only matching, which emits those draws, may judge it
"""

LAWS: frozenset[Law] = frozenset(("sampled", "distinct", "chosen"))
"""Laws that say nothing about the target's draws: any rule may judge them."""

ALL_LAWS: frozenset[Law] = LAWS | {"foreseen"}


class Signal(NamedTuple):
    """What a drafter thinks of one of its guesses, for controllers and the lab; no verifier reads it."""

    confidence: float
    """Its probability of the node's token after the node's parent: of a draft model, in its own row at temperature 1,
    whatever the request's; of a lookup, by counts."""
    entropy: float
    """Of that distribution, in nats: not of the one at the request's temperature, which a drawn token came from."""


@dataclass(frozen=True, slots=True)
class Tree:
    """One sequence's token tree, parents before children.

    `q` holds, for the laws with chance in them, node -> [V] probabilities exactly as its children were drawn from.
    `signals` holds, where a plan asked for them and the drafter has any, node -> what it thinks of the guess.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    law: Law = "chosen"
    q: Mapping[int, Tensor] = field(default_factory=dict)
    signals: Mapping[int, Signal] = field(default_factory=dict)

    @staticmethod
    def root(token: int) -> Tree:
        """No draft at all: plain decoding."""
        return Tree((token,), (-1,))

    @staticmethod
    def chain(root: int, drafted: Sequence[int], law: Law = "chosen", q: Mapping[int, Tensor] | None = None) -> Tree:
        """The drafted tokens one after another under `root`."""
        return Tree((root, *drafted), tuple(range(-1, len(drafted))), law, q or {})

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def drafted(self) -> int:
        """Nodes that are guesses: all but the root."""
        return len(self.tokens) - 1

    @property
    def drawn(self) -> bool:
        """Whether chance of the drafter's own had a part: then q matters, and no node may be left out."""
        return self.law in ("sampled", "distinct")

    @property
    def is_chain(self) -> bool:
        return self.parents == tuple(range(-1, len(self.tokens) - 1))

    @property
    def depth(self) -> int:
        """Distance of the deepest node from the root."""
        return len(self.tokens) - 1 if self.is_chain else max(self.depths())

    def depths(self) -> list[int]:
        """Distance of each node from the root."""
        depths = [0] * len(self.tokens)
        for node, parent in enumerate(self.parents[1:], start=1):
            depths[node] = depths[parent] + 1
        return depths

    def path(self, node: int) -> list[int]:
        """Nodes from the root's child down to `node`; empty for the root."""
        path: list[int] = []
        while node > 0:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def children(self) -> list[list[int]]:
        """For each node its children in the order they were drawn."""
        children: list[list[int]] = [[] for _ in self.tokens]
        for node, parent in enumerate(self.parents[1:], start=1):
            children[parent].append(node)
        return children

    def keep(self, wanted: Callable[[int], bool]) -> Tree:
        """The tree without the nodes that are not wanted and all below them; self if every node is wanted.

        Only lossless if `wanted` looks at nothing that was left to chance after the node was drawn.
        """
        new: dict[int, int] = {0: 0}
        for node in range(1, len(self.tokens)):
            if self.parents[node] in new and wanted(node):
                new[node] = len(new)
        if len(new) == len(self.tokens):
            return self
        parents = (-1, *(new[self.parents[node]] for node in new if node))
        q = {new[node]: row for node, row in self.q.items() if node in new}
        signals = {new[node]: signal for node, signal in self.signals.items() if node in new}
        return Tree(tuple(self.tokens[node] for node in new), parents, self.law, q, signals)

    def check(self) -> None:
        """Raise BrokenInvariant unless this is a tree with parents first and the rows that its law asks for."""
        if not self.tokens or len(self.tokens) != len(self.parents) or self.parents[0] != -1:
            raise BrokenInvariant(f"a draft needs a root with parent -1, got parents {self.parents[:4]}")
        for node, parent in enumerate(self.parents[1:], start=1):
            if not 0 <= parent < node:
                raise BrokenInvariant(
                    f"draft node {node} has parent {parent}, allowed 0..{node - 1}: parents come first"
                )
        if self.drawn:
            bare = set(self.parents[1:]) - set(self.q)
            if bare:
                raise BrokenInvariant(
                    f"a {self.law!r} draft must bring the row its tokens were drawn from: node {min(bare)}"
                )


@dataclass(frozen=True, slots=True)
class Draft:
    """A batch of trees, one a sequence and each of its own size."""

    trees: tuple[Tree, ...]

    @staticmethod
    def roots(tokens: Iterable[int]) -> Draft:
        """Plain decoding for a batch whose last tokens are given."""
        return Draft(tuple(Tree.root(token) for token in tokens))

    def __len__(self) -> int:
        return len(self.trees)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes of each tree, root included."""
        return tuple(len(tree) for tree in self.trees)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the target makes of a draft: for each sequence the accepted nodes in order, then the token after them."""

    paths: tuple[tuple[int, ...], ...]
    bonus: tuple[int, ...]

    @property
    def accepted(self) -> tuple[int, ...]:
        """How many drafted tokens of each sequence stand."""
        return tuple(len(path) for path in self.paths)

    def emitted(self, draft: Draft) -> list[list[int]]:
        """The tokens each sequence gains: the accepted ones and the bonus."""
        return [
            [*(tree.tokens[node] for node in path), bonus]
            for tree, path, bonus in zip(draft.trees, self.paths, self.bonus, strict=True)
        ]
