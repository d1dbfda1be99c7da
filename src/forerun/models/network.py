"""A decoder as plain functions over packed weights; it knows nothing of drafts. Its layers are `models/layer.py`.

One forward takes the fed tokens of a whole batch as one flat row list [T]; which of them see which is the view's
business. q, k and v are one product, so are gate and up: on few rows every launch counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from forerun.cache.view import View
from forerun.models.attention import attend
from forerun.models.config import ModelConfig
from forerun.models.layer import layer, norm
from forerun.models.linear import Weight, linear
from forerun.models.rope import Rope


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's tensors by role. `products` are laid out to be read whole: "qkv", "o", "gate_up", "down"; `rows` are
    the parts of the joined ones."""

    products: Mapping[str, Weight]
    norms: Mapping[str, Tensor]
    rows: Mapping[str, list[int]]
    eps: float

    def has(self, role: str) -> bool:
        return role in self.norms

    def linear(self, role: str, x: Tensor) -> Tensor:
        return linear(x, self.products[role])

    def linears(self, *roles: str, x: Tensor) -> tuple[Tensor, ...]:
        joined = "qkv" if "q" in roles else "gate_up"
        return torch.split(linear(x, self.products[joined]), self.rows[joined], -1)

    def norm(self, role: str, x: Tensor) -> Tensor:
        return norm(x, self.norms[role], self.eps)


@dataclass(frozen=True, slots=True)
class Network:
    """A decoder's weights and its rotary tables: `cos`, `sin` [max_len, 1, head_dim] for each rotation.

    `sin` is negative in its first half, which makes a rotation x * cos + roll(x) * sin.
    """

    config: ModelConfig
    layers: tuple[Layer, ...]
    embedding: Tensor
    norm: Tensor
    head: Weight
    turns: Mapping[Rope, tuple[Tensor, Tensor]]

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def max_len(self) -> int:
        """Positions that the rotary tables reach."""
        return self.turns[self.config.rope][0].shape[0]

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
        if config.embedding_scale != 1:
            x = x * torch.tensor(config.embedding_scale, dtype=x.dtype)  # rounded, as transformers does
        turns = {rope: (cos[positions], sin[positions]) for rope, (cos, sin) in self.turns.items()}

        def mixed(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            turn = turns[config.rope_of(i)]
            view.write(i, torch.stack((_turned(k, *turn), v), 1))
            return attend(_turned(q, *turn), view, i, config.windows[i], config.attention_scale)

        tapped = {}
        for i, weights in enumerate(self.layers):
            if i in taps:
                tapped[i] = x
            x = layer(weights, i, x, config.head_dim, mixed, config.activation)
        if len(self.layers) in taps:
            tapped[len(self.layers)] = norm(x, self.norm, config.norm_eps)
        logits = linear(norm(x[wanted], self.norm, config.norm_eps), self.head)
        return logits, torch.cat([tapped[i] for i in taps], -1) if taps else None


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys [T, heads, dim] turned where they lie."""
    rolled = x.roll(x.shape[-1] // 2, -1)
    return x.mul_(cos).addcmul_(rolled, sin)
