"""The operations suffice for drafting heads: one EAGLE layer, fed with [embedding; feature], against plain torch.

The head normalises the embedding of a token and the target's feature for the token before it, joins them to rows of
twice the width, attends over those, and adds to the feature (EAGLE-3, arXiv:2503.01840). What it gives out is the next
step's feature, so a draft of several tokens feeds it with its own.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

_ext = pytest.importorskip("forerun.native._ext", reason="the native extension was not built")

from nets import BLOCK, Packed, config, here

from forerun.arch import FAMILIES
from forerun.models.native import Weights
from forerun.models.rope import inv_freq, tables

LENGTH = 40


class Head(Packed):
    """The weights of one decoder layer whose q, k and v read rows of twice the width."""

    def __init__(self, shape, seed=0):
        super().__init__(shape, "f32", seed)
        q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        inner = -(-shape.intermediate_size // 16) * 16
        shapes = {name: (entry.rows, entry.cols) for name, entry in self._entries.items()}
        shapes["0.qkv"] = (q + 2 * kv, 2 * shape.hidden_size)
        assert shapes["0.gate_up"][0] == 2 * inner
        self._pack(shapes)
        self._vectors["feature_norm"] = self._norm(shape.hidden_size)


def program(head, c, isa):
    """The head as operations; what it adds to the feature is tapped, for the next step."""
    net = _ext.Program(isa)
    weights = Weights(net, head)
    embedded, joined = net.buffer(c.hidden_size), net.buffer(2 * c.hidden_size)
    x, last = net.buffer(c.hidden_size), net.buffer(c.hidden_size)
    qkv, mixed = net.buffer((c.heads + 2 * c.kv_heads) * c.head_dim), net.buffer(c.heads * c.head_dim)
    inner = net.buffer(-(-c.intermediate_size // 16) * 16)
    angles, scale = inv_freq(c.rope, c.head_dim, c.max_len)
    net.rope(angles.numpy(), scale)
    net.embed(weights.matrix("embedding"), embedded)
    net.feature(x)
    net.norm(embedded, joined, weights.vector("0.attention_norm"), c.norm_eps)
    net.norm(x, joined, weights.vector("feature_norm"), c.norm_eps, c.hidden_size)
    net.linear(joined, qkv, weights.matrix("0.qkv"))
    net.attend(qkv, mixed, 0, c.heads, c.kv_heads, c.head_dim)
    net.linear(mixed, x, weights.matrix("0.o"), then="add")
    norm = weights.vector("0.mlp_norm")
    net.linear(x, inner, weights.matrix("0.gate_up"), norm=norm, eps=c.norm_eps, then="silu")
    net.linear(inner, x, weights.matrix("0.down"), then="add")
    net.tap(x)
    net.pick(x, last)
    net.logits(last, weights.matrix("head"), norm=weights.vector("norm"), eps=c.norm_eps)
    return net


@torch.inference_mode()
def plainly(head, c, tokens, features):
    """The same in torch, over a whole chain: logits [T, V] and new features [T, E]."""
    value = lambda name: torch.from_numpy(head.values(name))
    norm = lambda x, name: F.rms_norm(x, x.shape[-1:], torch.from_numpy(head.vector(name)), c.norm_eps)
    x = norm(F.embedding(torch.tensor(tokens), value("embedding")), "0.attention_norm")
    joined = torch.cat([x, norm(features, "feature_norm")], -1)
    qkv = (joined @ value("0.qkv").T).view(len(tokens), -1, c.head_dim).transpose(0, 1)
    q, k, v = qkv.split((c.heads, c.kv_heads, c.kv_heads))
    cos, sin = tables(c.rope, c.head_dim, len(tokens))
    half = c.head_dim // 2
    turn = lambda x: x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin
    k, v = (x.repeat_interleave(c.heads // c.kv_heads, 0) for x in (turn(k), v))
    mixed = F.scaled_dot_product_attention(turn(q), k, v, is_causal=True).transpose(0, 1).flatten(1)
    x = features + mixed @ value("0.o").T
    strips = (norm(x, "0.mlp_norm") @ value("0.gate_up").T).unflatten(-1, (-1, 2, 16))
    x = x + (F.silu(strips[..., 0, :]) * strips[..., 1, :]).flatten(-2) @ value("0.down").T
    return norm(x, "norm") @ value("head").T, x


@pytest.fixture
def head():
    bare = dict(layers=1, windows=(None,), qkv_bias=False, o_bias=False, mlp_bias=False, tied=False)
    bare |= dict(arch=FAMILIES["llama"], local_rope=None, attention_scale=None)
    shape = config(random.Random(5), "f32", hidden_size=44, head_dim=16, **bare)
    return Head(shape), shape


@pytest.mark.parametrize("isa", here())
def test_a_head_fed_with_embedding_and_feature_equals_torch(head, isa):
    weights, shape = head
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(shape.vocab_size, (LENGTH,), generator=draw).tolist()
    features = torch.randn(LENGTH, shape.hidden_size, generator=draw)
    want, states = plainly(weights, shape, tokens, features)
    net, blocks = program(weights, shape, isa), list(range(-(-LENGTH // BLOCK)))
    memory = _ext.KV(1, shape.kv_heads, shape.head_dim, len(blocks), "f32")
    certain = LENGTH - 5
    nodes = [-1, 0, 1, 2, 3]
    rows, _, hidden = net.run(memory, tokens, [(0, certain, 0, nodes, blocks)], features.numpy())
    torch.testing.assert_close(torch.from_numpy(rows), want[certain:], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.from_numpy(hidden), states, rtol=1e-4, atol=1e-4)


def test_a_head_drafts_on_with_its_own_features(head):
    """Two levels of a tree, the second fed with what the first gave out; each path equals torch over the chain."""
    weights, shape = head
    draw = torch.Generator().manual_seed(1)
    prompt, features = [3, 1, 4, 1, 5], torch.randn(5, shape.hidden_size, generator=draw)
    net, blocks = program(weights, shape, here()[0]), [1]
    memory = _ext.KV(1, shape.kv_heads, shape.head_dim, 2, "f32")
    _, _, hidden = net.run(memory, prompt, [(0, 4, 0, [-1], blocks)], features.numpy())
    own = np.repeat(hidden[-1:], 2, 0)
    level = [7, 9]
    rows, _, _ = net.run(memory, level, [(4, 0, 1, [-1, 0, 0], blocks)], own)
    for row, token in zip(rows, level, strict=True):
        chain = torch.cat([features, torch.from_numpy(hidden[-1:])])
        want, _ = plainly(weights, shape, [*prompt, token], chain)
        torch.testing.assert_close(torch.from_numpy(row), want[-1], rtol=1e-4, atol=1e-4)


def test_features_of_another_number_of_rows_or_width_are_refused(head):
    weights, shape = head
    net, memory = program(weights, shape, here()[0]), _ext.KV(1, shape.kv_heads, shape.head_dim, 1, "f32")
    for features in (None, np.zeros((2, shape.hidden_size), np.float32), np.zeros((1, 3), np.float32)):
        with pytest.raises(ValueError, match="feature"):
            net.run(memory, [1], [(0, 0, 0, [-1], [0])], features)


def test_copy_joins_rows(head):
    """A head that takes the feature as it is: `copy` in the place of its norm."""
    weights, shape = head
    width = shape.hidden_size
    net = _ext.Program(here()[0])
    x, joined = net.buffer(width), net.buffer(2 * width)
    net.feature(x)
    net.copy(x, joined, width)
    net.copy(x, joined)
    net.tap(joined)
    last = net.buffer(width)
    net.pick(x, last)
    net.logits(last, Weights(net, weights).matrix("head"))
    features = np.arange(2 * width, dtype=np.float32).reshape(2, width)
    memory = _ext.KV(1, shape.kv_heads, shape.head_dim, 1, "f32")
    rows, _, hidden = net.run(memory, [0, 0], [(0, 1, 0, [-1], [0])], features)
    assert np.array_equal(hidden, np.concatenate([features, features], -1))
    np.testing.assert_allclose(rows[0], weights.values("head") @ features[1], rtol=1e-4)


def test_a_shape_that_does_not_fit_is_refused_when_the_program_is_made(head):
    weights, shape = head
    net = _ext.Program(here()[0])
    right, narrow, wide = net.buffer(shape.hidden_size), net.buffer(8), net.buffer(1000)
    for source, out in ((narrow, wide), (right, narrow)):
        with pytest.raises(ValueError, match=r"8 columns|narrow"):
            net.linear(source, out, Weights(net, weights).matrix("head"))


def test_a_silu_that_is_added(head):
    """Medusa's block: x + silu(W x + b)."""
    weights, shape = head
    wide, width = shape.heads * shape.head_dim, shape.hidden_size
    net = _ext.Program(here()[0])
    read, x, last = net.buffer(wide), net.buffer(width), net.buffer(width)
    net.feature(read)
    net.feature(x)
    bias = np.linspace(-1, 1, width, dtype=np.float32)
    net.linear(read, x, Weights(net, weights).matrix("0.o"), bias=net.vector(bias), then="add_silu")
    net.tap(x)
    net.pick(x, last)
    features = np.random.default_rng(0).standard_normal((3, wide + width)).astype(np.float32)
    memory = _ext.KV(1, shape.kv_heads, shape.head_dim, 1, "f32")
    _, _, hidden = net.run(memory, [0] * 3, [(0, 2, 0, [-1], [0])], features)
    y = features[:, :wide] @ weights.values("0.o").T + bias
    np.testing.assert_allclose(hidden, features[:, wide:] + y / (1 + np.exp(-y)), rtol=1e-4, atol=1e-5)


def test_an_embedding_with_a_stand_in(head):
    weights, shape = head
    width = shape.hidden_size
    net = _ext.Program(here()[0])
    x, last = net.buffer(width), net.buffer(width)
    other = np.arange(width, dtype=np.float32)
    net.embed(Weights(net, weights).matrix("embedding"), x, stand_in=net.vector(other), id=3)
    net.tap(x)
    net.pick(x, last)
    memory = _ext.KV(1, shape.kv_heads, shape.head_dim, 1, "f32")
    _, _, hidden = net.run(memory, [3, 4, 3], [(0, 2, 0, [-1], [0])])
    table = weights.values("embedding")
    np.testing.assert_allclose(hidden, np.stack([other, table[4], other]), rtol=1e-6)
    with pytest.raises(ValueError, match="stand-in has 3 values"):
        net.embed(Weights(net, weights).matrix("embedding"), x, stand_in=net.vector(other[:3]), id=3)
