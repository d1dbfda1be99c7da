"""The memory of keys and values: one tensor [layers, 2, kv_heads, slots, head_dim] for a whole model.

A slot is one token's place; slots of one head follow each other, so a sequence in consecutive slots is read as a view.
The tensor is zeros: the system hands out its pages when they are first written, and a masked slot is never NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from forerun.core.errors import CapacityError


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one token's keys and values take."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def token_bytes(self) -> int:
        return self.layers * 2 * self.kv_heads * self.head_dim * self.dtype.itemsize


class KVMemory:
    """Keys and values of `slots` tokens; `layer[i]` is [2, kv_heads, slots, head_dim], keys first."""

    def __init__(self, shape: KVShape, slots: int, device: torch.device | str) -> None:
        size = (shape.layers, 2, shape.kv_heads, slots, shape.head_dim)
        try:
            self._all = torch.zeros(size, dtype=shape.dtype, device=device)
        except (RuntimeError, TypeError) as error:  # CUDA's out of memory is the first, a size past 64 bits the second
            raise CapacityError(
                f"no memory for the keys and values of {slots} tokens ({slots * shape.token_bytes / 2**20:.0f} MiB on "
                f"{device}): ask for fewer kv_tokens"
            ) from error
        self.layer = list(self._all.unbind(0))
        self.slots = slots
        self.bytes = slots * shape.token_bytes

    @property
    def device(self) -> torch.device:
        return self._all.device

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy slots to other slots in every layer at once; sources are read before anything is written."""
        if sources:
            to, of = (torch.tensor(slots, device=self.device) for slots in (targets, sources))
            self._all.index_copy_(3, to, self._all.index_select(3, of))

    def copy_blocks(self, copies: Sequence[tuple[int, int]], block_size: int) -> None:
        """Copy whole blocks (from, to)."""
        for source, target in copies:
            self.move(_range(source, block_size), _range(target, block_size))


def _range(block: int, size: int) -> range:
    return range(block * size, (block + 1) * size)
