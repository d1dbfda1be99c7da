"""One forward's view of the KV memory: where the fed tokens go, which slots each query reads, and what it may see.

A sequence's storage is its held tokens, then the nodes of its tree in feeding order; the block table says which slot
each has. Storage index and position agree up to the root; below it, a node's position is the root's plus its depth, so
windows and rotations go by position and only the mask knows the tree. Everything is built once for all layers.

On a CPU each sequence is a span of its own: a view if it lies in one piece, else a gather. On an accelerator launches
are what costs, so a batch is one padded span.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from forerun.cache.kv import KVMemory
from forerun.cache.pool import Table
from forerun.core.draft import Tree

Window = int | None


@dataclass(frozen=True, slots=True)
class Part:
    """What one sequence feeds: `certain` tokens from storage index `start` on, then its tree's nodes from `seen` on."""

    table: Table
    start: int
    certain: int
    tree: Tree
    seen: int = 0

    @property
    def stop(self) -> int:
        """Storage index, and position, of the root."""
        return self.start + self.certain

    @property
    def first(self) -> int:
        """Storage index of the first fed token; the others follow it."""
        return self.start + self.certain + self.seen if self.seen else self.start

    @property
    def end(self) -> int:
        """Storage index after the last fed token."""
        return self.stop + len(self.tree)

    def positions(self) -> list[int]:
        """Position of each fed token."""
        stop = self.stop
        return [*range(self.start, stop), *(stop + depth for depth in self.tree.depths()[self.seen :])]

    def slots(self, block_size: int) -> Tensor:
        """Slot of each storage index up to `end`."""
        blocks = torch.tensor(self.table.blocks[: -(-self.end // block_size)])
        return (blocks[:, None] * block_size + torch.arange(block_size)).flatten()[: self.end]


@dataclass(frozen=True, slots=True)
class Read:
    """What a span reads under one window: `slots` a slice or [B, S]; `mask` [B, 1, G * N, S] is added to scores."""

    slots: slice | Tensor
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class Span:
    """Fed tokens that attend in one call, as a grid of `batch` rows; `grid` and `home` map tokens in and out of it."""

    batch: int
    rows: slice
    reads: dict[Window, Read]
    grid: Tensor | None = None
    home: Tensor | None = None


@dataclass(frozen=True, slots=True)
class View:
    """Where T fed tokens are written (`slots`, a slice or [T]) and how they read."""

    memory: KVMemory
    slots: slice | Tensor
    spans: tuple[Span, ...]

    def write(self, layer: int, kv: Tensor) -> None:
        """Put keys and values [T, 2, kv_heads, head_dim] in their slots."""
        memory, kv = self.memory.layer[layer], kv.permute(1, 2, 0, 3)
        if isinstance(self.slots, slice):
            memory[:, :, self.slots].copy_(kv)
        else:
            memory.index_copy_(2, self.slots, kv)


@dataclass(frozen=True, slots=True)
class Viewer:
    """Makes views for a model: its memory, block size, distinct windows and queries per key head."""

    memory: KVMemory
    block_size: int
    windows: frozenset[Window]
    group: int
    dtype: torch.dtype
    padded: bool = False

    def view(self, parts: Sequence[Part]) -> View:
        """The view of one forward over `parts`, in feeding order."""
        if self.padded and len(parts) > 1:
            spans: tuple[Span, ...] = (self._padded_span(parts),)
        else:
            ends = _ends(parts)
            spans = tuple(self._span(part, end) for part, end in zip(parts, ends, strict=True))
        if len(parts) == 1 and parts[0].table.in_one_piece:
            base = parts[0].table.blocks[0] * self.block_size
            return View(self.memory, slice(base + parts[0].first, base + parts[0].end), spans)
        written = torch.cat([part.slots(self.block_size)[part.first :] for part in parts])
        return View(self.memory, written.to(self.memory.device), spans)

    def _span(self, part: Part, end: int) -> Span:
        reads: dict[Window, Read] = {}
        slots = None if part.table.in_one_piece else part.slots(self.block_size).to(self.memory.device)
        base = part.table.blocks[0] * self.block_size
        for window in self.windows:
            low = 0 if window is None else max(0, min(part.first, part.stop) - window + 1)
            seen = slice(base + low, base + part.end) if slots is None else slots[None, low:]
            mask = None
            if part.end - part.first > 1 or (window is not None and part.end > window + low):
                mask = self._additive(allowed(part, window)[:, low:])[None, None]
            reads[window] = Read(seen, mask)
        return Span(1, slice(end - (part.end - part.first), end), reads)

    def _padded_span(self, parts: Sequence[Part]) -> Span:
        sizes, ends = [part.end - part.first for part in parts], _ends(parts)
        most, longest = max(sizes), max(part.end for part in parts)
        rows = torch.arange(most)
        grid = torch.cat([end - size + rows.clamp(max=size - 1) for size, end in zip(sizes, ends, strict=True)])
        home = torch.cat([b * most + torch.arange(size) for b, size in enumerate(sizes)])
        slots = torch.zeros(len(parts), longest, dtype=torch.long)
        for b, part in enumerate(parts):
            slots[b, : part.end] = part.slots(self.block_size)
        device = self.memory.device
        slots = slots.to(device)
        reads: dict[Window, Read] = {}
        for window in self.windows:
            mask = torch.zeros(len(parts), most, longest, dtype=torch.bool)
            for b, part in enumerate(parts):
                mask[b, :, : part.end] = allowed(part, window)[rows.clamp(max=sizes[b] - 1)]
            reads[window] = Read(slots, self._additive(mask)[:, None])
        return Span(len(parts), slice(0, ends[-1]), reads, grid.to(device), home.to(device))

    def _additive(self, mask: Tensor) -> Tensor:
        """bool [..., N, S] as 0 and -inf [..., G * N, S], repeated for the queries that share a key head."""
        added = torch.zeros(mask.shape, dtype=self.dtype).masked_fill_(~mask, float("-inf"))
        return added.repeat(*(1,) * (mask.dim() - 2), self.group, 1).to(self.memory.device)


def allowed(part: Part, window: Window) -> Tensor:
    """Which storage indices [S] each fed token may see, bool [N, S]: what is held, its own path and itself."""
    mask = torch.ones(part.end - part.first, part.end, dtype=torch.bool).tril_(part.first)
    nodes = len(part.tree) - part.seen
    if nodes and not part.tree.is_chain:
        mask[-nodes:, part.stop :] = ancestors(part.tree.parents)[part.seen :]
    if window is not None and part.end > window:
        keys = torch.arange(part.end)
        keys[part.stop :] = part.stop + torch.tensor(part.tree.depths(), dtype=torch.long)
        mask &= keys[part.first :, None] - keys < window
    return mask


@lru_cache(64)
def ancestors(parents: tuple[int, ...]) -> Tensor:
    """bool [N, N]: row n marks the nodes on the way from the root to n, both included."""
    up = torch.tensor([0, *parents[1:]])
    nodes = torch.arange(len(parents))
    marks = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    at = nodes
    while True:
        marks[nodes, at] = True
        if not at.any():
            return marks
        at = up[at]


def _ends(parts: Iterable[Part]) -> list[int]:
    """Rows fed up to and with each part."""
    ends, total = [], 0
    for part in parts:
        total += part.end - part.first
        ends.append(total)
    return ends
