"""The decoder of Llama, Mistral, Qwen2 and Qwen3 as operations for the compiled runtime: `llama.py`, told to a machine.

A program is a list of fused operations over numbered buffers, one row for each fed token. It holds no weights, only
where they lie, so another one (fewer layers, other taps) is made in well under a millisecond.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from forerun.models.config import ModelConfig
from forerun.models.rope import inv_freq
from forerun.native import ext
from forerun.native.packed import PackedModel

UNIT = 16  # the width of what a gated MLP works on is padded to this


def network(
    packed: PackedModel,
    config: ModelConfig,
    *,
    layers: int,
    vocab: int,
    max_len: int,
    isa: str,
    taps: Collection[int] = (),
) -> ext.Program:
    """The first `layers` layers and the head: logits of the first `vocab` ids, rotations as for `max_len` tokens.

    Tap i hands out the input of layer i, the number of layers itself the output of the final norm, in ascending order.
    """
    net = ext.Program(isa)
    weights = Weights(net, packed)
    layer = Layers(net, weights, config)
    x, eps = layer.x, config.norm_eps
    last = net.buffer(config.hidden_size)

    angles, scale = inv_freq(config.rope, config.head_dim, max_len)
    net.rope(angles.numpy(), scale)
    net.embed(weights.matrix("head" if config.tied else "embedding"), x)
    for i in range(layers):
        if i in taps:
            net.tap(x)
        layer(i, x, weights.vector(f"{i}.attention_norm"), config.windows[i] or 0)
    norm = weights.vector("norm")
    if layers in taps:
        final = net.buffer(config.hidden_size)
        net.norm(x, final, norm, eps)
        net.tap(final)
    net.pick(x, last)
    net.logits(last, weights.matrix("head", rows=vocab), norm=norm, eps=eps)
    return net


class Shape(Protocol):
    """Sizes of a decoder's layers."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def norm_eps(self) -> float: ...


class Layers:
    """Adds decoder layers to a program, one a call; `x` is the buffer of what flows from layer to layer."""

    def __init__(self, net: ext.Program, weights: Weights, shape: Shape) -> None:
        self._net, self._weights, self._shape = net, weights, shape
        self.x = net.buffer(shape.hidden_size)
        self._qkv = net.buffer((shape.heads + 2 * shape.kv_heads) * shape.head_dim)
        self._mixed = net.buffer(shape.heads * shape.head_dim)
        self._inner = net.buffer(-(-shape.intermediate_size // UNIT) * UNIT)

    def __call__(self, i: int, source: int, norm: int = -1, window: int = 0) -> None:
        """Layer i, whose attention reads `source`, normalised first if `norm` is given; 0 is no window."""
        net, weights, s = self._net, self._weights, self._shape
        qkv, eps = weights.matrix(f"{i}.qkv"), s.norm_eps
        net.linear(source, self._qkv, qkv, bias=weights.bias(f"{i}.qkv"), norm=norm, eps=eps)
        q_norm, k_norm = (weights.maybe(f"{i}.{which}_norm") for which in "qk")
        net.attend(
            self._qkv, self._mixed, i, s.heads, s.kv_heads, s.head_dim,
            window=window, q_norm=q_norm, k_norm=k_norm, eps=eps,
        )  # fmt: skip
        net.linear(self._mixed, self.x, weights.matrix(f"{i}.o"), bias=weights.bias(f"{i}.o"), then="add")
        norm, gate_up = weights.vector(f"{i}.mlp_norm"), weights.matrix(f"{i}.gate_up")
        net.linear(self.x, self._inner, gate_up, bias=weights.bias(f"{i}.gate_up"), norm=norm, eps=eps, then="silu")
        net.linear(self._inner, self.x, weights.matrix(f"{i}.down"), bias=weights.bias(f"{i}.down"), then="add")


class Weights:
    """Numbers of a packed model's weights in a program, by name."""

    def __init__(self, net: ext.Program, packed: PackedModel) -> None:
        self._net, self._packed = net, packed

    def matrix(self, name: str, rows: int | None = None) -> int:
        """A matrix, or its first `rows` rows: a head need not say the ids that pad its table."""
        entry = self._packed.matrix(name)
        return self._net.matrix(entry.format, rows or entry.rows, entry.cols, self._packed.arena, entry.offset)

    def vector(self, name: str) -> int:
        """A vector."""
        return self._net.vector(self._packed.vector(name))

    def bias(self, name: str) -> int:
        """The bias of a matrix, or -1 for none."""
        return self.maybe(f"{name}.bias")

    def maybe(self, name: str) -> int:
        """A vector, or -1 if there is none."""
        return self.vector(name) if name in self._packed else -1
