"""What runs a network for a `PagedTarget`: one forward at a time over block memory of its own, no bookkeeping.

A runner knows slots and blocks, never sequences; the target knows sequences, never numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from forerun.cache.view import Part
from forerun.core.errors import SpecError
from forerun.core.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Facts:
    """What a network is, whatever runs it."""

    layers: int
    hidden_size: int
    vocab_rows: int
    """Rows of the embedding, padding counted."""
    max_len: int
    """Positions that its rotations reach."""
    token_bytes: int
    """Keys and values of one token in all layers."""
    weight_bytes: int
    """Matrices and norms that every forward reads, an input table of its own left out."""
    dtype: str
    """Of the weights."""
    device: str


class Forward(NamedTuple):
    """What came of a forward: logits [R, vocab] of the fresh nodes, their likeliest ids, tapped states [T, taps * E].

    `first_best` holds the id of the first of the largest logits of each row; None if nothing found it on its way.
    """

    logits: Tensor
    first_best: list[int] | None
    hidden: Tensor | None


class Runner(Protocol):
    """A network with its block memory. Block b's tokens lie in the slots [b * block_size, (b + 1) * block_size)."""

    @property
    def facts(self) -> Facts: ...

    @property
    def vocabulary(self) -> Vocabulary:
        """What makes distributions of its rows."""
        ...

    def open(self, blocks: int, block_size: int, vocab: int) -> int:
        """Take memory for keys and values and return its bytes; from now on rows are the logits of `vocab` ids.

        Called once, before anything else. CapacityError for memory that cannot be had, SpecError for a block size that
        this runner does not know.
        """
        ...

    def forward(self, parts: Sequence[Part], tokens: list[int], taps: tuple[int, ...]) -> Forward:
        """Feed `tokens`, those of each part in turn, none of them empty; see `Network.forward` for the taps."""
        ...

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy slots to other slots in every layer; all sources are read before anything is written."""
        ...

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks (from, to), one after another."""
        ...

    def first(self, layers: int) -> Runner:
        """A runner of the first layers, the final norm and the head: weights shared, memory not yet taken."""
        ...


def unknown_block_size(what: str, got: int, known: int) -> SpecError:
    """The error for a block size that a runner does not know."""
    return SpecError(f"{what} keeps keys and values in blocks of {known} tokens, got block_size {got}: leave it out")
