"""Each head's network, three times: restated slowly slot by slot, in torch over block memory, and compiled."""

from __future__ import annotations

import math

import pytest
import torch

from forerun.cache.pool import Table
from forerun.cache.view import Part
from forerun.core.draft import Tree
from forerun.models.heads.config import MedusaConfig, RecurrentConfig
from forerun.models.heads.head import Head
from forerun.models.heads.plain import TorchMedusa, TorchRecurrent
from forerun.models.opening import pack_now
from forerun.native import ext
from forerun.testing.heads import random_config, random_head
from forerun.testing.tiny import Tiny, write_folder
from forerun.weights.folder import open_checkpoint

native = pytest.mark.skipif(ext.extension() is None, reason="the native extension was not built")

CASES = [
    ("eagle", {}),
    ("eagle", {"fc_bias": True, "qkv_bias": True}),
    ("eagle3", {}),
    ("eagle3", {"norm_before_residual": True, "qk_norm": True}),
    ("eagle3", {"norm_before_fc": True, "norm_output": True}),
    ("eagle3", {"fc_norm": True, "layers": 2, "own_embedding": True}),
    ("p-eagle", {"layers": 2}),
    ("mtp", {}),
    ("mtp", {"qk_norm": True, "layers": 2}),
]
VOCAB, WIDTH, WORDS = 264, 32, 50


def make(kind, changes) -> Head:
    draft_vocab = VOCAB if kind == "eagle" else WORDS
    sizes = {"intermediate_size": 40, "heads": 4, "kv_heads": 2, "head_dim": 8}
    config = random_config(kind, VOCAB, WIDTH, draft_vocab, **sizes, **changes)
    return random_head(config, seed=4, own_end=None if kind != "mtp" else False, sharp=0.5)


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def target(request, tmp_path_factory):
    """The tiny target's folder and its embedding and end."""
    folder = write_folder(tmp_path_factory.mktemp("tiny"), Tiny(hidden=WIDTH, tied=request.param))
    load = open_checkpoint(folder).tensors.load
    embedding = load("model.embed_tokens.weight").float()
    return folder, embedding, embedding if request.param else load("lm_head.weight").float()


def rms(x, weight, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def restated(head: Head, embedding, end, tokens, features, own, positions, sees):
    """Logits and states of slots, one after another, in float64; `sees[i]` are the slots that slot i attends to.

    `own[i]` says that features[i] is a state of the head itself.
    """
    c: RecurrentConfig = head.config
    w = {name: head.floats(name).double() for name in head.tensors}
    table = w.get("embed_tokens.weight", embedding.double())
    caches = [{} for _ in range(c.layers)]
    out, states = [], []
    for i, token in enumerate(tokens):
        e = w["mask_embedding"] if token == c.mask_id and "mask_embedding" in w else table[token]
        f = features[i].double()
        if c.kind == "eagle":
            x = w["fc.weight"] @ torch.cat([e, f]) + w.get("fc.bias", 0.0)
            read = x
        elif c.kind == "mtp":
            joined = [rms(e, w["enorm.weight"], c.norm_eps), rms(f, w["hnorm.weight"], c.norm_eps)]
            x = w["fc.weight"] @ torch.cat(joined)
            read = rms(x, w["layers.0.input_layernorm.weight"], c.norm_eps)
        else:
            if not own[i]:
                if c.norm_before_fc:
                    f = rms(f, w["input_norm.weight"], c.norm_eps)
                if c.fc_norm:
                    size = c.target_size
                    parts = [f[j * size : (j + 1) * size] for j in range(len(c.taps))]
                    f = torch.cat([rms(part, w[f"fc_norm.{j}.weight"], c.norm_eps) for j, part in enumerate(parts)])
                f = w["fc.weight"] @ f
            normed = rms(f, w["layers.0.hidden_norm.weight"], c.norm_eps)
            x = normed if c.norm_before_residual else f
            read = torch.cat([rms(e, w["layers.0.input_layernorm.weight"], c.norm_eps), normed])
        for layer in range(c.layers):
            at = f"layers.{layer}."
            if layer:
                read = rms(x, w[f"{at}input_layernorm.weight"], c.norm_eps)
            heads = {}
            for part, count in (("q", c.heads), ("k", c.kv_heads), ("v", c.kv_heads)):
                flat = w[f"{at}self_attn.{part}_proj.weight"] @ read + w.get(f"{at}self_attn.{part}_proj.bias", 0.0)
                heads[part] = flat.view(count, c.head_dim)
            for part in "qk":
                if c.qk_norm:
                    heads[part] = rms(heads[part], w[f"{at}self_attn.{part}_norm.weight"], c.norm_eps)
                heads[part] = turned(heads[part], positions[i], c)
            caches[layer][i] = heads["k"], heads["v"]
            mixed = []
            for q in range(c.heads):
                kv = q // (c.heads // c.kv_heads)
                scores = torch.stack([heads["q"][q] @ caches[layer][j][0][kv] for j in sees[i]]) / math.sqrt(c.head_dim)
                weights = torch.softmax(scores, 0)
                mixed.append(sum(p * caches[layer][j][1][kv] for p, j in zip(weights, sees[i], strict=True)))
            x = x + w[f"{at}self_attn.o_proj.weight"] @ torch.cat(mixed)
            y = rms(x, w[f"{at}post_attention_layernorm.weight"], c.norm_eps)
            gate, up = w[f"{at}mlp.gate_proj.weight"] @ y, w[f"{at}mlp.up_proj.weight"] @ y
            x = x + w[f"{at}mlp.down_proj.weight"] @ (gate * torch.sigmoid(gate) * up)
        if c.norm_output:
            x = rms(x, w["norm.weight"], c.norm_eps)
        states.append(x)
        last = rms(x, w["norm.weight"], c.norm_eps) if c.normed and not c.norm_output else x
        theirs = end.double() if head.words is None else end.double()[head.words]
        out.append((w["lm_head.weight"] if head.own_end else theirs) @ last)
    return torch.stack(out), torch.stack(states)


def turned(x, position, c):
    half = c.head_dim // 2
    angles = position / c.rope.theta ** (torch.arange(half, dtype=torch.float64) * 2 / c.head_dim)
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def runners(head, target):
    folder, embedding, end = target
    yield TorchRecurrent(head, embedding, end)
    if ext.extension() is not None:
        from forerun.models.heads.native import NativeRecurrent

        yield NativeRecurrent(head, pack_now(open_checkpoint(folder), "f32"), "f32")


@pytest.mark.parametrize(("kind", "changes"), CASES, ids=str)
def test_true_slots_then_two_levels_of_a_tree(kind, changes, target):
    head, (_, embedding, end) = make(kind, changes), target
    draw = torch.Generator().manual_seed(2)
    tokens = torch.randint(VOCAB, (21,), generator=draw).tolist()
    features = torch.randn(21, head.config.features, generator=draw) * 3
    certain = 20
    below, deeper = [7, 9], [3, 4, 5]
    parents = [-1, 0, 0, 1, 1, 2]
    for runner in runners(head, target):
        runner.open(8, 16)
        table = Table([2, 5, 3], in_one_piece=False)
        root = Tree((tokens[-1],), (-1,))
        done = runner.forward([Part(table, 0, certain, root)], tokens, features, own=False)
        tree1 = Tree((tokens[-1], *below), tuple(parents[:3]))
        level1 = runner.forward([Part(table, certain, 0, tree1, 1)], below, done.states[[-1, -1]], own=True)
        tree2 = Tree((*tree1.tokens, *deeper), tuple(parents))
        level2 = runner.forward([Part(table, certain, 0, tree2, 3)], deeper, level1.states[[0, 0, 1]], own=True)
        true = list(range(21))
        sees = [true[: i + 1] for i in true] + [
            [*true, 21],
            [*true, 22],
            [*true, 21, 23],
            [*true, 21, 24],
            [*true, 22, 25],
        ]
        fed = [*features, *done.states[[-1, -1]], *level1.states[[0, 0, 1]]]
        positions = [*true, 21, 21, 22, 22, 22]
        own = [False] * 21 + [True] * 5
        want, states = restated(head, embedding, end, [*tokens, *below, *deeper], fed, own, positions, sees)
        logits = torch.cat([done.logits, level1.logits, level2.logits])
        torch.testing.assert_close(logits.double(), want[20:], rtol=2e-4, atol=2e-4)
        got = torch.cat([done.states, level1.states, level2.states])
        torch.testing.assert_close(got.double(), states, rtol=2e-4, atol=2e-4)


def test_masked_slots_of_p_eagle(target):
    head, (_, embedding, end) = make("p-eagle", {}), target
    mask = head.config.mask_id
    draw = torch.Generator().manual_seed(3)
    tokens = [*(torch.randint(2, VOCAB, (9,), generator=draw).tolist()), mask, mask]
    features = torch.cat(
        [torch.randn(9, head.config.features, generator=draw), head.floats("mask_hidden").expand(2, -1)]
    )
    sees = [list(range(i + 1)) for i in range(11)]
    want, _ = restated(head, embedding, end, tokens, features, [False] * 11, range(11), sees)
    for runner in runners(head, target):
        runner.open(4, 16)
        tree = Tree.chain(tokens[8], [mask, mask])
        done = runner.forward([Part(Table([1]), 0, 8, tree)], tokens, features, own=False)
        torch.testing.assert_close(done.logits.double(), want[8:], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("changes", [{}, {"blocks": 2, "bias": False}, {"shared_end": True}], ids=str)
@pytest.mark.parametrize("own_end", [True, False])
@pytest.mark.parametrize("words", [WORDS, VOCAB])
def test_medusa(changes, own_end, words, target):
    folder, _, end = target
    head = random_head(random_config("medusa", VOCAB, WIDTH, words, **changes), 6, own_end)
    c: MedusaConfig = head.config
    features = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(1))
    want = torch.empty(5, c.count, words, dtype=torch.float64)
    for b in range(5):
        for i in range(c.count):
            x = features[b].double()
            for j in range(c.blocks):
                y = head.floats(f"heads.{i}.blocks.{j}.weight").double() @ x
                y = y + head.floats(f"heads.{i}.blocks.{j}.bias").double() if c.bias else y
                x = x + y * torch.sigmoid(y)
            if own_end:
                last = head.floats("lm_head.weight" if c.shared_end else f"heads.{i}.lm_head.weight").double()
            else:
                last = end.double() if head.words is None else end.double()[head.words]
            want[b, i] = last @ x
    made = [TorchMedusa(head, end)]
    if ext.extension() is not None:
        from forerun.models.heads.native import NativeMedusa

        made.append(NativeMedusa(head, pack_now(open_checkpoint(folder), "f32"), "f32"))
    for runner in made:
        torch.testing.assert_close(runner.forward(features).double(), want, rtol=2e-4, atol=2e-4)


@native
@pytest.mark.parametrize(("format", "most"), [("bf16", 0.02), ("int8", 0.06), ("q4", 0.12)])
@pytest.mark.parametrize(("kind", "changes"), CASES[::2], ids=str)
def test_formats_are_near(kind, changes, format, most, target):
    from forerun.models.heads.native import NativeRecurrent

    folder, embedding, end = target
    head = make(kind, changes)
    draw = torch.Generator().manual_seed(2)
    tokens = torch.randint(VOCAB, (9,), generator=draw).tolist()
    features = torch.randn(9, head.config.features, generator=draw)
    sees = [list(range(i + 1)) for i in range(9)]
    want, _ = restated(head, embedding, end, tokens, features, [False] * 9, range(9), sees)
    runner = NativeRecurrent(head, pack_now(open_checkpoint(folder), "f32"), format)
    runner.open(4, 16)
    done = runner.forward([Part(Table([1]), 0, 8, Tree((tokens[8],), (-1,)))], tokens, features, own=False)
    error = float((done.logits.double() - want[8:]).norm() / want[8:].norm())
    assert error < most


@native
def test_four_bits_are_of_the_vocabulary_s_end_alone(target):
    from forerun.models.heads.packed import pack_head, rows_of_end
    from forerun.native.packed import VECTOR

    packed = pack_now(open_checkpoint(target[0]), "f32")
    for head in (make("eagle3", {}), make("mtp", {}), random_head(random_config("medusa", VOCAB, WIDTH, WORDS), 6)):
        made = pack_head(head, "q4", lambda ids: rows_of_end(packed, ids))
        formats = {name: entry.format for name, entry in made.entries.items() if entry.format != VECTOR}
        assert {format for name, format in formats.items() if name.endswith(".end")} == {"q4_1"}
        assert {format for name, format in formats.items() if not name.endswith(".end")} == {"int8"}
