"""Networks run by torch: the readable reference on CPUs, and the runtime on accelerators.

Slots and masks are made once a forward, in `cache/view.py`; layers only run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from forerun.cache.kv import KVMemory, KVShape
from forerun.cache.view import Part, Viewer
from forerun.core.vocabulary import PLAIN, Vocabulary
from forerun.models.network import Network
from forerun.targets.runner import Facts, Forward


class TorchRunner:
    """A `Runner` over one of our networks. `memory` and `viewer` are there once it was opened."""

    vocabulary: Vocabulary = PLAIN
    memory: KVMemory
    viewer: Viewer

    def __init__(self, network: Network) -> None:
        config = network.config
        self.network = network
        self._shape = KVShape(len(network.layers), config.kv_heads, config.head_dim, network.dtype)
        self._facts = Facts(
            layers=len(network.layers),
            hidden_size=config.hidden_size,
            vocab_rows=config.vocab_size,
            max_len=network.max_len,
            token_bytes=self._shape.token_bytes,
            weight_bytes=config.matrix_values(len(network.layers)) * network.dtype.itemsize,
            dtype=str(network.dtype).removeprefix("torch."),
            device=str(network.device),
        )

    @property
    def facts(self) -> Facts:
        return self._facts

    def open(self, blocks: int, block_size: int, vocab: int) -> int:
        config, device = self.network.config, self.network.device
        self.memory = KVMemory(self._shape, blocks * block_size, device)
        self.viewer = Viewer(
            self.memory,
            block_size,
            frozenset(config.windows[: len(self.network.layers)]),
            config.heads // config.kv_heads,
            self.network.dtype,
            padded=device.type != "cpu",
        )
        self._block_size, self._vocab = block_size, vocab
        return self.memory.bytes

    @torch.inference_mode()
    def forward(self, parts: Sequence[Part], tokens: list[int], taps: tuple[int, ...]) -> Forward:
        device = self.network.device
        positions = [position for part in parts for position in part.positions()]
        logits, hidden = self.network.forward(
            torch.tensor(tokens, device=device),
            torch.tensor(positions, device=device),
            self.viewer.view(parts),
            _wanted(parts, device),
            taps,
        )
        return Forward(logits[:, : self._vocab], None, hidden)

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        self.memory.move(sources, targets)

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        self.memory.copy_blocks(copies, self._block_size)

    def first(self, layers: int) -> TorchRunner:
        return TorchRunner(self.network.first(layers))


def _wanted(parts: Sequence[Part], device: torch.device) -> Tensor | slice:
    """Rows of fresh nodes among all fed tokens: each part's last ones."""
    fresh = [len(part.tree) - part.seen for part in parts]
    ends = list(accumulate(part.end - part.first for part in parts))
    if len(parts) == 1:
        return slice(ends[0] - fresh[0], ends[0])
    return torch.tensor(
        [row for count, end in zip(fresh, ends, strict=True) for row in range(end - count, end)],
        dtype=torch.long,
        device=device,
    )
