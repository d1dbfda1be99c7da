"""The decoder of Llama, Mistral, Qwen2 and Qwen3 as operations for the compiled runtime: `llama.py`, told to a machine.

A program is a list of fused operations over numbered buffers, one row for each fed token. It holds no weights, only
where they lie, so another one (fewer layers, other taps) is made in well under a millisecond.
"""

from __future__ import annotations

from collections.abc import Collection

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
    heads, kv_heads, dim, eps = config.heads, config.kv_heads, config.head_dim, config.norm_eps
    x = net.buffer(config.hidden_size)  # what flows from layer to layer
    qkv = net.buffer((heads + 2 * kv_heads) * dim)
    mixed = net.buffer(heads * dim)
    inner = net.buffer(-(-config.intermediate_size // UNIT) * UNIT)
    last = net.buffer(config.hidden_size)

    angles, scale = inv_freq(config.rope, dim, max_len)
    net.rope(angles.numpy(), scale)
    net.embed(weights.matrix("head" if config.tied else "embedding"), x)
    for i in range(layers):
        if i in taps:
            net.tap(x)
        norm = weights.vector(f"{i}.attention_norm")
        net.linear(x, qkv, weights.matrix(f"{i}.qkv"), bias=weights.bias(f"{i}.qkv"), norm=norm, eps=eps)
        q_norm, k_norm = (weights.vector(f"{i}.{which}_norm") if config.qk_norm else -1 for which in "qk")
        window = config.windows[i] or 0
        net.attend(qkv, mixed, i, heads, kv_heads, dim, window=window, q_norm=q_norm, k_norm=k_norm, eps=eps)
        net.linear(mixed, x, weights.matrix(f"{i}.o"), bias=weights.bias(f"{i}.o"), then="add")
        norm, gate_up = weights.vector(f"{i}.mlp_norm"), weights.matrix(f"{i}.gate_up")
        net.linear(x, inner, gate_up, bias=weights.bias(f"{i}.gate_up"), norm=norm, eps=eps, then="silu")
        net.linear(inner, x, weights.matrix(f"{i}.down"), bias=weights.bias(f"{i}.down"), then="add")
    norm = weights.vector("norm")
    if layers in taps:
        final = net.buffer(config.hidden_size)
        net.norm(x, final, norm, eps)
        net.tap(final)
    net.pick(x, last)
    net.logits(last, weights.matrix("head", rows=vocab), norm=norm, eps=eps)
    return net


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
        return self.vector(f"{name}.bias") if f"{name}.bias" in self._packed else -1
