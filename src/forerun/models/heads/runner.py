"""What runs a head for a drafter: one forward at a time, over block memory of its own where the design has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from forerun.cache.view import Part
from forerun.core.vocabulary import Vocabulary
from forerun.models.heads.head import Head


class HeadForward(NamedTuple):
    """Logits [R, draft_vocab] of the fresh nodes, the likeliest draft word of each if it was found on the way, and the
    states [T, H] of all that was fed, which stand in for the target's features in the next step."""

    logits: Tensor
    best: Sequence[int] | None
    states: Tensor


class RecurrentRunner(Protocol):
    """An EAGLE, P-EAGLE or MTP network with block memory."""

    @property
    def head(self) -> Head: ...

    @property
    def vocabulary(self) -> Vocabulary:
        """What makes distributions of its rows."""
        ...

    @property
    def weight_bytes(self) -> int:
        """Bytes that a forward reads whole: the head's, and the target's own head where it serves."""
        ...

    def open(self, blocks: int, block_size: int) -> int:
        """Take memory for keys and values and return its bytes; called once, first. CapacityError if it cannot be."""
        ...

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks (from, to)."""
        ...

    def forward(self, parts: Sequence[Part], tokens: Sequence[int], features: Tensor, own: bool) -> HeadForward:
        """Feed slots of (token, feature): features [T, F] of the target, or, if `own`, states [T, H] of earlier steps.

        A part's tree is one of slots; rows are wanted of its nodes from `seen` on.
        """
        ...


class MedusaRunner(Protocol):
    """Medusa heads."""

    @property
    def head(self) -> Head: ...

    @property
    def vocabulary(self) -> Vocabulary:
        """What makes distributions of its rows."""
        ...

    @property
    def weight_bytes(self) -> int:
        """As above."""
        ...

    def forward(self, features: Tensor) -> Tensor:
        """Logits [B, count, draft_vocab] over features [B, F]."""
        ...
