"""A decoder as operations for the compiled runtime: `network.py` and `layer.py`, told to a machine.

A program is a list of fused operations over numbered buffers, one row for each fed token. It holds no weights, only
where they lie, so another one (fewer layers, other taps) is made in well under a millisecond.
"""

from __future__ import annotations

from collections.abc import Collection

from forerun.arch import Activation
from forerun.models.config import ModelConfig
from forerun.models.layer import Sizes
from forerun.models.rope import Rope, inv_freq
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
    layer = Layers(net, weights, config, config.activation, config.attention_scale)
    x, eps = layer.x, config.norm_eps
    last = net.buffer(config.hidden_size)

    ropes = {rope: rotation(net, rope, config.head_dim, max_len) for rope in (config.rope, config.local_rope) if rope}
    net.embed(weights.matrix("head" if config.tied else "embedding"), x, scale=config.embedding_scale)
    for i in range(layers):
        if i in taps:
            net.tap(x)
        norm = weights.vector(f"{i}.attention_norm")
        layer(i, x, norm, window=config.windows[i] or 0, rope=ropes[config.rope_of(i)])
    norm = weights.vector("norm")
    if layers in taps:
        final = net.buffer(config.hidden_size)
        net.norm(x, final, norm, eps)
        net.tap(final)
    net.pick(x, last)
    net.logits(last, weights.matrix("head", rows=vocab), norm=norm, eps=eps)
    return net


def rotation(net: ext.Program, rope: Rope, head_dim: int, max_len: int) -> int:
    """The number of a way to turn positions in a program."""
    angles, scale = inv_freq(rope, head_dim, max_len)
    return net.rope(angles.numpy(), scale)


class Layers:
    """Adds decoder layers to a program, one a call; `x` is the buffer of what flows from layer to layer."""

    def __init__(
        self, net: ext.Program, weights: Weights, sizes: Sizes, activation: Activation = "silu",
        attention_scale: float | None = None,
    ) -> None:  # fmt: skip
        self._net, self._weights, self._sizes = net, weights, sizes
        self._activation, self._attention_scale = activation, attention_scale or 0.0
        self.x = net.buffer(sizes.hidden_size)
        self._qkv = net.buffer((sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim)
        self._mixed = net.buffer(sizes.heads * sizes.head_dim)
        self._inner = net.buffer(-(-sizes.intermediate_size // UNIT) * UNIT)
        self._out = -1

    def __call__(self, i: int, source: int, norm: int = -1, *, window: int = 0, rope: int = 0) -> None:
        """Layer i, whose attention reads `source`, normalised first if `norm` is given; 0 is no window."""
        net, weights, s = self._net, self._weights, self._sizes
        qkv, eps = weights.matrix(f"{i}.qkv"), s.norm_eps
        net.linear(source, self._qkv, qkv, bias=weights.bias(f"{i}.qkv"), norm=norm, eps=eps)
        q_norm, k_norm = (weights.maybe(f"{i}.{which}_norm") for which in "qk")
        net.attend(
            self._qkv, self._mixed, i, s.heads, s.kv_heads, s.head_dim,
            window=window, q_norm=q_norm, k_norm=k_norm, eps=eps, rope=rope, scale=self._attention_scale,
        )  # fmt: skip
        self._add(self._mixed, f"{i}.o", f"{i}.attention_out_norm")
        norm, gate_up = weights.vector(f"{i}.mlp_norm"), weights.matrix(f"{i}.gate_up")
        net.linear(
            self.x, self._inner, gate_up, bias=weights.bias(f"{i}.gate_up"), norm=norm, eps=eps, then=self._activation
        )
        self._add(self._inner, f"{i}.down", f"{i}.mlp_out_norm")

    def _add(self, source: int, matrix: str, norm: str) -> None:
        """Add a product to what flows on, normalised first where the model has that norm."""
        net, weights = self._net, self._weights
        product, bias, weight = weights.matrix(matrix), weights.bias(matrix), weights.maybe(norm)
        if weight < 0:
            net.linear(source, self.x, product, bias=bias, then="add")
            return
        if self._out < 0:
            self._out = net.buffer(self._sizes.hidden_size)
        net.linear(source, self._out, product, bias=bias)
        net.norm(self._out, self.x, weight, self._sizes.norm_eps, then="add")


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
