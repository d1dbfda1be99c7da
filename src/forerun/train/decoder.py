"""A whole decoder of any family as one function of its weights, with gradients: for what trains more than a
head. Weights go by their names in model files, without `model.` before them.

Texts are whole and padded at their end, which nothing before it sees. The serving network is `models/network.py`; the
tests hold this one against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from forerun.models.config import ModelConfig
from forerun.models.layer import Attend, Named, attention, layer, mlp, norm, rotated
from forerun.models.rope import tables
from forerun.weights.source import TensorSource

Weights = Mapping[str, Tensor]
_PREFIX = "model."


def weights_of(source: TensorSource, layers: Mapping[int, int]) -> dict[str, Tensor]:
    """Float32 weights of the given layers, numbered anew (old -> new), and of the last norm; no embedding, no end."""
    found = {}
    for full in source.names():
        name = full.removeprefix(_PREFIX)
        parts = name.split(".")
        if parts[0] == "layers" and int(parts[1]) in layers:
            found[".".join(["layers", str(layers[int(parts[1])]), *parts[2:]])] = source.load(full).to(
                torch.float32, copy=True
            )
        elif name == "norm.weight":
            found[name] = source.load(full).to(torch.float32, copy=True)
    return found


def filed(name: str) -> str:
    """A weight's name in a model file."""
    return _PREFIX + name


@dataclass(frozen=True)
class Decoder:
    """The function for one config."""

    config: ModelConfig

    def states(self, w: Weights, embedded: Tensor) -> Tensor:
        """States [B, L, E] after the last norm, of tokens' embeddings [B, L, E] as the model's file holds them."""
        c = self.config
        last = next(islice(self.streams(w, embedded), c.layers, None))
        return norm(last, w["norm.weight"] + c.arch.norm_shift, c.norm_eps)

    def streams(self, w: Weights, embedded: Tensor) -> Iterator[Tensor]:
        """What goes into each layer, and what comes out of the last, [B, L, E] each."""
        c, x = self.config, embedded * self.config.embedding_scale
        attend = self._attend(embedded.shape[1])
        for i in range(c.layers):
            yield x
            x = layer(self._layer(w, i), i, x, c.head_dim, attend, c.activation)
        yield x

    def around(self, w: Weights, embedded: Tensor, i: int) -> tuple[Tensor, Tensor]:
        """What the MLP of layer i reads, and what that layer gives."""
        c, of = self.config, self._layer(w, i)
        x = next(islice(self.streams(w, embedded), i, None))
        attended = attention(of, i, of.norm("attention_norm", x), c.head_dim, self._attend(embedded.shape[1]))
        read = of.norm("mlp_norm", x + attended)
        return read, x + attended + mlp(of, read, c.activation)

    def _layer(self, w: Weights, i: int) -> Named:
        arch = self.config.arch
        return Named(w, f"layers.{i}.", self.config.norm_eps, arch.layer, arch.norm_shift)

    def _attend(self, length: int) -> Attend:
        """Each token sees itself and those before it, as far as its layer's window goes."""
        c = self.config
        turns = {rope: tables(rope, c.head_dim, length) for rope in (c.rope, c.local_rope) if rope}

        def attend(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cos, sin = (table[:, None] for table in turns[c.rope_of(i)])
            q, k = rotated(q, cos, sin).to(v.dtype), rotated(k, cos, sin).to(v.dtype)
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))  # [B, heads, L, dim]
            window = c.windows[i]
            mask = None if window is None or window >= length else _banded(length, window)
            shared = c.heads != c.kv_heads
            mixed = F.scaled_dot_product_attention(
                q, k, v, mask, is_causal=mask is None, scale=c.attention_scale, enable_gqa=shared
            )
            return mixed.transpose(1, 2).flatten(2)

        return attend


def _banded(length: int, window: int) -> Tensor:
    """Who sees whom [L, L] where a token sees itself and the `window - 1` before it."""
    index = torch.arange(length)
    gap = index[:, None] - index[None]
    return (gap >= 0) & (gap < window)
