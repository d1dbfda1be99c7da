"""The cache of one sequence in a transformers model, cut and rearranged by us.

Every layer stores all tokens (a `DynamicCache` made without a config does, windowed layers too: the window is then in
the mask), so cutting is slicing. transformers' own `crop` is not used: its argument changed meaning between versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class HfCache:
    """Keys and values of one sequence; `cache` is what the model is called with."""

    def __init__(self) -> None:
        self.cache = _empty()
        self.late = False
        """Whether its keys were turned by the second set of rotary factors, where a model has two."""

    def __len__(self) -> int:
        return int(self.cache.get_seq_length())

    def plain(self) -> bool:
        """Whether all layers hold keys and values, one each for every token that was fed, and nothing else."""
        from transformers.cache_utils import DynamicLayer

        layers = getattr(self.cache, "layers", [])
        return bool(layers) and all(
            type(layer) is DynamicLayer and layer.is_initialized and layer.keys.shape[-2] == len(self)
            for layer in layers
        )

    def head(self, length: int) -> HfCache:
        """A copy of the first `length` tokens."""
        copy = HfCache()
        copy.late = self.late
        for index, layer in enumerate(self.cache.layers):
            copy.cache.update(layer.keys[..., :length, :], layer.values[..., :length, :], index)
        return copy

    def cut(self, length: int) -> None:
        """Hold the first `length` tokens only."""
        if length == 0:
            self.cache = _empty()
        elif length < len(self):
            for layer in self.cache.layers:
                layer.keys, layer.values = layer.keys[..., :length, :], layer.values[..., :length, :]

    @torch.inference_mode()
    def gather(self, held: int, nodes: Sequence[int]) -> None:
        """After `held` tokens, hold those of the nodes behind them that are listed, in that order."""
        if list(nodes) != list(range(len(nodes))):
            for layer in self.cache.layers:
                to = torch.arange(held, held + len(nodes), device=layer.keys.device)
                of = torch.tensor(nodes, device=layer.keys.device) + held
                for states in (layer.keys, layer.values):
                    states.index_copy_(-2, to, states.index_select(-2, of))
        self.cut(held + len(nodes))


def _empty() -> Any:
    from transformers import DynamicCache

    return DynamicCache()
