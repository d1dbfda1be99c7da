"""Heads run by torch: the readable reference on CPUs, and the runtime on accelerators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from forerun.cache.kv import KVMemory, KVShape
from forerun.cache.view import Part, Viewer
from forerun.core.vocabulary import PLAIN, Vocabulary
from forerun.models.attention import attend
from forerun.models.heads import medusa, recurrent
from forerun.models.heads.config import MedusaConfig, RecurrentConfig
from forerun.models.heads.head import Head
from forerun.models.heads.runner import HeadForward
from forerun.models.layer import rotated
from forerun.models.rope import tables


class TorchRecurrent:
    """A `RecurrentRunner` in torch. `embedding` [V, H] and `end` [V, H] are the target's, on the device and in the
    dtype that the head is to run in."""

    vocabulary: Vocabulary = PLAIN

    def __init__(self, head: Head, embedding: Tensor, end: Tensor) -> None:
        assert isinstance(head.config, RecurrentConfig)
        self.config = head.config
        self.head = head
        self._device, self._dtype = embedding.device, embedding.dtype
        self._w = on_device(head, self._dtype, self._device)
        self._embedding = self._w.get("embed_tokens.weight", embedding)
        self._end = the_end(head, self._w, end)

    @property
    def weight_bytes(self) -> int:
        return bytes_read(self._w, [self._end])

    def open(self, blocks: int, block_size: int) -> int:
        c, most = self.config, blocks * block_size
        cos, sin = (table.to(self._device, self._dtype) for table in tables(c.rope, c.head_dim, c.max_len, most))
        self._cos, self._sin = cos[:, None], sin[:, None]
        shape = KVShape(c.layers, c.kv_heads, c.head_dim, self._dtype)
        self._memory = KVMemory(shape, most, self._device)
        padded, windows = self._device.type != "cpu", frozenset(map(c.window, range(c.layers)))
        self._viewer = Viewer(self._memory, block_size, windows, c.heads // c.kv_heads, self._dtype, padded)
        self._block_size = block_size
        return self._memory.bytes

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        self._memory.copy_blocks(copies, self._block_size)

    @torch.inference_mode()
    def forward(self, parts: Sequence[Part], tokens: Sequence[int], features: Tensor, own: bool) -> HeadForward:
        c, w = self.config, self._w
        features = features.to(self._device, self._dtype)
        embedded = self._embed(torch.tensor(tokens, device=self._device))
        places = torch.tensor([p for part in parts for p in part.positions()], device=self._device)
        view, cos, sin = self._viewer.view(parts), self._cos[places], self._sin[places]

        def mixed(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            view.write(i, torch.stack([rotated(k, cos, sin), v], 1))
            return attend(rotated(q, cos, sin), view, i, c.window(i))

        feature = features if own else recurrent.lifted(w, c, features)
        states = recurrent.forward(w, c, embedded, feature, mixed)
        logits = F.linear(recurrent.ending(w, c, states[_wanted(parts)]), self._end)
        return HeadForward(logits.float(), None, states.float())

    def _embed(self, tokens: Tensor) -> Tensor:
        stand_in = self._w.get("mask_embedding")
        if stand_in is None:
            return F.embedding(tokens, self._embedding)
        masked = torch.eq(tokens, self.config.mask_id or 0)
        rows = F.embedding(tokens.masked_fill(masked, 0), self._embedding)
        return torch.where(masked[:, None], stand_in, rows)


class TorchMedusa:
    """A `MedusaRunner` in torch; `end` [V, H] is the target's."""

    vocabulary: Vocabulary = PLAIN

    def __init__(self, head: Head, end: Tensor) -> None:
        assert isinstance(head.config, MedusaConfig)
        self.head, self.config = head, head.config
        self._w = on_device(head, end.dtype, end.device)
        if head.own_end:
            self._ends = [self._w[name] for name in head.config.ends]
        else:
            self._ends = [the_end(head, self._w, end)]

    @property
    def weight_bytes(self) -> int:
        return bytes_read(self._w, self._ends)

    @torch.inference_mode()
    def forward(self, features: Tensor) -> Tensor:
        features = features.to(self._ends[0].device, self._ends[0].dtype)
        rows = [
            F.linear(medusa.forward(self._w, self.config, i, features), self._ends[i % len(self._ends)])
            for i in range(self.config.count)
        ]
        return torch.stack(rows, 1).float()


def bytes_read(w: Mapping[str, Tensor], ends: Sequence[Tensor]) -> int:
    """Bytes of a head that a forward reads whole, and of the vocabulary's ends that it uses."""
    read = [value for name, value in w.items() if name != "embed_tokens.weight" and not name.endswith("lm_head.weight")]
    return sum(value.numel() * value.element_size() for value in (*read, *ends))


def on_device(head: Head, dtype: torch.dtype, device: torch.device | str) -> dict[str, Tensor]:
    """All tensors of a head as floats there."""
    return {name: head.floats(name).to(device, dtype) for name in head.tensors}


def the_end(head: Head, w: dict[str, Tensor], end: Tensor) -> Tensor:
    """The vocabulary's end [draft_vocab, H]: the head's own, or the target's rows for its words."""
    if head.own_end:
        return w[head.config.ends[0]]
    return end if head.words is None else end[head.words.to(end.device)]


def _wanted(parts: Sequence[Part]) -> list[int]:
    """Rows of the fresh nodes among all fed slots: the last ones of each part."""
    rows, end = list[int](), 0
    for part in parts:
        end += part.end - part.first
        rows += range(end - (len(part.tree) - part.seen), end)
    return rows
