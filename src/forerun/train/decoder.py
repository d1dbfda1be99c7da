"""A whole decoder of the dense families as one function of its weights, with gradients: for what trains more than a
head. Weights go by their names in model files, without `model.` before them.

Texts are whole and padded at their end, which nothing before it sees. The serving network is `models/llama.py`; the
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
from forerun.models.heads.plain import rotated
from forerun.models.heads.recurrent import norm
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
        """States [B, L, E] after the last norm, of embedded tokens [B, L, E]."""
        last = next(islice(self.streams(w, embedded), self.config.layers, None))
        return norm(last, w["norm.weight"], self.config.norm_eps)

    def streams(self, w: Weights, embedded: Tensor) -> Iterator[Tensor]:
        """What goes into each layer, and what comes out of the last, [B, L, E] each."""
        x, turn = embedded, self._turn(embedded.shape[1])
        for i in range(self.config.layers):
            yield x
            x = x + self.attended(w, i, x, turn)
            x = x + self.fed(w, i, self.read(w, i, x))
        yield x

    def around(self, w: Weights, embedded: Tensor, i: int) -> tuple[Tensor, Tensor]:
        """What the MLP of layer i reads, and what that layer gives."""
        x = next(islice(self.streams(w, embedded), i, None))
        x = x + self.attended(w, i, x, self._turn(embedded.shape[1]))
        read = self.read(w, i, x)
        return read, x + self.fed(w, i, read)

    def _turn(self, length: int) -> tuple[Tensor, Tensor]:
        cos, sin = tables(self.config.rope, self.config.head_dim, length)
        return cos[:, None], sin[:, None]

    def attended(self, w: Weights, i: int, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """What attention of layer i adds."""
        c, at = self.config, f"layers.{i}.self_attn."
        y = norm(x, w[f"layers.{i}.input_layernorm.weight"], c.norm_eps)
        joined = (F.linear(y, w[f"{at}{part}_proj.weight"], w.get(f"{at}{part}_proj.bias")) for part in "qkv")
        q, k, v = (part.view(*part.shape[:-1], -1, c.head_dim) for part in joined)
        if c.qk_norm:
            q, k = (norm(part, w[f"{at}{name}_norm.weight"], c.norm_eps) for part, name in ((q, "q"), (k, "k")))
        q, k = rotated(q, *turn).to(v.dtype), rotated(k, *turn).to(v.dtype)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))  # [B, heads, L, dim]
        window = c.windows[i]
        mask = None if window is None or window >= x.shape[1] else _banded(x.shape[1], window)
        mixed = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=c.heads != c.kv_heads)
        return F.linear(mixed.transpose(1, 2).flatten(2), w[f"{at}o_proj.weight"], w.get(f"{at}o_proj.bias"))

    def read(self, w: Weights, i: int, x: Tensor) -> Tensor:
        """What the MLP of layer i reads."""
        return norm(x, w[f"layers.{i}.post_attention_layernorm.weight"], self.config.norm_eps)

    def fed(self, w: Weights, i: int, y: Tensor) -> Tensor:
        """What the MLP of layer i adds, of what it reads."""
        at = f"layers.{i}.mlp."
        gate, up = (F.linear(y, w[f"{at}{p}_proj.weight"], w.get(f"{at}{p}_proj.bias")) for p in ("gate", "up"))
        return F.linear(F.silu(gate) * up, w[f"{at}down_proj.weight"], w.get(f"{at}down_proj.bias"))


def _banded(length: int, window: int) -> Tensor:
    """Who sees whom [L, L] where a token sees itself and the `window - 1` before it."""
    index = torch.arange(length)
    gap = index[:, None] - index[None]
    return (gap >= 0) & (gap < window)
