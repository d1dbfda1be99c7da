"""The decoder of Llama, Mistral, Qwen2 and Qwen3 as plain functions over packed weights; it knows nothing of drafts.

One forward takes the fed tokens of a whole batch as one flat row list [T]; which of them see which is the view's
business. q, k and v are one product, so are gate and up: on few rows every launch counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from forerun.cache.view import View
from forerun.models.attention import attend
from forerun.models.config import ModelConfig
from forerun.models.linear import Weight, linear


@dataclass(frozen=True, slots=True)
class Layer:
    """One block's weights. `qk_norm` [heads + kv_heads, head_dim] scales normalised queries and keys (Qwen3)."""

    attention_norm: Tensor
    qkv: Weight
    o: Weight
    mlp_norm: Tensor
    gate_up: Weight
    down: Weight
    qk_norm: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Network:
    """A decoder's weights and its rotary tables `cos`, `sin` [max_len, 1, head_dim].

    `sin` is negative in its first half, which makes a rotation x * cos + roll(x) * sin.
    """

    config: ModelConfig
    layers: tuple[Layer, ...]
    embedding: Tensor
    norm: Tensor
    head: Weight
    cos: Tensor
    sin: Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def max_len(self) -> int:
        """Positions that the rotary tables reach."""
        return self.cos.shape[0]

    def end_rows(self) -> Tensor:
        """The vocabulary's end as a plain matrix [V, E]."""
        if self.config.tied:
            return self.embedding
        return self.head.matrix.to_dense() if self.head.packed else self.head.matrix

    def first(self, layers: int) -> Network:
        """The same weights without the later layers."""
        return replace(self, layers=self.layers[:layers])

    def forward(
        self, tokens: Tensor, positions: Tensor, view: View, wanted: Tensor | slice, taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Feed `tokens` [T] at `positions` [T]: logits [R, V] of the rows `wanted`, hidden [T, taps * E] if tapped.

        Tap i is the input of layer i; the number of layers itself stands for the output of the final norm.
        """
        config = self.config
        x = F.embedding(tokens, self.embedding)  # [T, E]
        turn = self.cos[positions], self.sin[positions]
        tapped = {}
        for i, layer in enumerate(self.layers):
            if i in taps:
                tapped[i] = x
            x = x + self._attention(i, layer, _norm(x, layer.attention_norm, config.norm_eps), turn, view)
            x = x + _mlp(layer, _norm(x, layer.mlp_norm, config.norm_eps))
        if len(self.layers) in taps:
            tapped[len(self.layers)] = _norm(x, self.norm, config.norm_eps)
        logits = linear(_norm(x[wanted], self.norm, config.norm_eps), self.head)
        return logits, torch.cat([tapped[i] for i in taps], -1) if taps else None

    def _attention(self, i: int, layer: Layer, x: Tensor, turn: tuple[Tensor, Tensor], view: View) -> Tensor:
        config = self.config
        heads, kv_heads, dim = config.heads, config.kv_heads, config.head_dim
        qkv = linear(x, layer.qkv).view(-1, heads + 2 * kv_heads, dim)
        qk = qkv[:, : heads + kv_heads]
        if layer.qk_norm is not None:
            qk.copy_(F.rms_norm(qk, (dim,), eps=config.norm_eps).mul_(layer.qk_norm))
        rolled = qk.roll(dim // 2, -1)
        qk.mul_(turn[0]).addcmul_(rolled, turn[1])
        view.write(i, qkv[:, heads:].view(-1, 2, kv_heads, dim))
        return linear(attend(qkv[:, :heads], view, i, config.windows[i]), layer.o)


def _mlp(layer: Layer, x: Tensor) -> Tensor:
    gate, up = linear(x, layer.gate_up).chunk(2, -1)
    return linear(F.silu(gate).mul_(up), layer.down)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, eps)
