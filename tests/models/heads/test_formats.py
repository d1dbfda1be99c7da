"""Heads on disk: what is written reads back bit for bit, other programs' spellings are understood, damage is named."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from forerun.core.errors import LoadError, SpecError
from forerun.models.heads.formats import medusa, mtp, own, safeai, speculators
from forerun.models.heads.head import Head, Rows8
from forerun.models.heads.opening import Fit, open_head
from forerun.models.rope import Rope
from forerun.quant import int8
from forerun.testing.heads import random_config, random_head

LAYERS = 6
FIT = Fit("tiny", 12, 30, LAYERS, "abc")
EMBEDDING = torch.randn(30, 12, generator=torch.Generator().manual_seed(9))
ROPES = (
    Rope(10000.0, 256),
    Rope(500000.0, 64, "llama3", 4.0, 1.0, 4.0),
    Rope(10000.0, 64, "yarn", 4.0, beta_fast=24.0),
    Rope(10000.0, 256, "linear", 2.0),
)


def rows(words):
    return EMBEDDING if words is None else EMBEDDING[words]


def head(kind="eagle3", seed=1, own_end=None, draft_vocab=17, **changes) -> Head:
    if kind in ("eagle3", "p-eagle"):
        changes = {"taps": (2, 3), **changes}
    return random_head(random_config(kind, 30, 12, draft_vocab, **changes), seed, own_end)


def same(a: Head, b: Head) -> None:
    assert a.config == b.config
    assert set(a.tensors) == set(b.tensors)
    for name, value in a.tensors.items():
        other = b.tensors[name]
        assert torch.equal(value, other), name
        assert value.dtype == other.dtype
    assert (a.words is None and b.words is None) or torch.equal(a.words, b.words)


@pytest.mark.parametrize("rope", ROPES, ids=lambda rope: rope.kind)
@pytest.mark.parametrize("changes", [{}, {"norm_before_residual": True}, {"draft_vocab": None}, {"taps": (1, 4)}])
def test_safeai_eagle3_round_trip(tmp_path, rope, changes):
    made = head(rope=rope, **changes)
    safeai.write(made, tmp_path, LAYERS, rows)
    found, notes = open_head(tmp_path, FIT)
    same(made, found)
    assert not notes
    names = set(load_file(tmp_path / "model.safetensors"))
    assert "midlayer.hidden_norm.weight" in names
    assert ("d2t" in names) == made.config.reduced


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_before_fc": True},
        {"fc_norm": True, "norm_before_residual": True},
        {"norm_output": True, "qk_norm": True},
        {"qkv_bias": True, "layers": 2},
        {"own_embedding": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["eagle3", "p-eagle"])
def test_speculators_round_trip(tmp_path, kind, changes):
    made = head(kind, **changes)
    speculators.write(made, tmp_path / "a", rows, EMBEDDING, "tiny")
    found, _ = open_head(tmp_path / "a", FIT)
    assert found.config.own_embedding, "the form always brings the embedding"
    for name in set(made.tensors) - {"mask_embedding"}:
        assert torch.equal(made.tensors[name], found.tensors[name]), name
    if kind == "p-eagle" and not made.config.own_embedding:
        table = found.tensors["embed_tokens.weight"]
        assert torch.equal(table[made.config.mask_id], made.tensors["mask_embedding"])
        others = torch.arange(30) != made.config.mask_id
        assert torch.equal(table[others], EMBEDDING[others])
    speculators.write(found, tmp_path / "b", rows, EMBEDDING, "tiny")
    same(found, open_head(tmp_path / "b", FIT)[0])
    assert (tmp_path / "a/config.json").read_bytes() == (tmp_path / "b/config.json").read_bytes()


@pytest.mark.parametrize("changes", [{}, {"blocks": 2}, {"bias": False}, {"shared_end": True, "draft_vocab": 17}])
@pytest.mark.parametrize("draft_vocab", [None, 17])
def test_medusa_round_trip(tmp_path, changes, draft_vocab):
    made = head("medusa", **{"draft_vocab": draft_vocab, **changes})
    medusa.write(made, tmp_path, rows, "tiny")
    same(made, open_head(tmp_path, FIT)[0])


def test_medusa_pickle_of_five_heads_where_the_config_says_two(tmp_path):
    made = head("medusa", draft_vocab=None, count=5)
    medusa.write(made, tmp_path, rows, "tiny")
    torch.save(load_file(tmp_path / "medusa_lm_head.safetensors"), tmp_path / "medusa_lm_head.pt")
    (tmp_path / "medusa_lm_head.safetensors").unlink()
    (tmp_path / "config.json").write_text(json.dumps({"medusa_num_heads": 2, "medusa_num_layers": 1}))
    found, _ = open_head(tmp_path, FIT)
    same(made, found)


def test_heads_inside_a_medusa_2_model(tmp_path):
    made = head("medusa", draft_vocab=None)
    medusa.write(made, tmp_path, rows, "tiny")
    inside = {
        f"medusa_head.{name}": value for name, value in load_file(tmp_path / "medusa_lm_head.safetensors").items()
    }
    inside |= {"model.norm.weight": torch.ones(12), "lm_head.weight": torch.ones(30, 12)}
    (tmp_path / "medusa_lm_head.safetensors").unlink()
    save_file(inside, tmp_path / "model.safetensors")
    same(made, open_head(tmp_path, FIT)[0])


@pytest.mark.parametrize("own_end", [True, False])
@pytest.mark.parametrize("draft_vocab", [None, 17])
def test_mtp_round_trip(tmp_path, own_end, draft_vocab):
    made = head("mtp", own_end=own_end, draft_vocab=draft_vocab, qk_norm=True)
    mtp.write(made, tmp_path)
    same(made, open_head(tmp_path, FIT)[0])
    assert "mtp.pre_fc_norm_hidden.weight" in load_file(tmp_path / "model.safetensors")


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "p-eagle", "mtp", "medusa"])
def test_own_form_keeps_int8_rows_bit_for_bit(tmp_path, kind):
    made = head(kind, draft_vocab=30 if kind == "eagle" else 17)
    own.write(made, tmp_path / "a")
    found, _ = open_head(tmp_path / "a", FIT)
    for name, value in made.tensors.items():
        if value.ndim == 2:
            assert isinstance(found.tensors[name], Rows8)
            assert torch.equal(found.tensors[name].codes, int8.quantise(value)[0])
            assert float((found.floats(name) - value).abs().max()) <= float(value.abs().max()) / 127
        else:
            assert torch.equal(found.tensors[name], value)
    own.write(found, tmp_path / "b")
    assert (tmp_path / "a/head.safetensors").read_bytes() == (tmp_path / "b/head.safetensors").read_bytes()
    assert (tmp_path / "a/head.json").read_bytes() == (tmp_path / "b/head.json").read_bytes()


def eagle1(tmp_path, **config):
    made = head("eagle", draft_vocab=30, fc_bias=True)
    said = {
        "hidden_size": 12, "intermediate_size": 20, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "vocab_size": 30, "rms_norm_eps": 1e-5, "max_position_embeddings": 256, "rope_theta": 10000.0, **config,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(said))
    return made


def test_eagle_1_pickle_with_the_target_s_embedding_in_it(tmp_path):
    made = eagle1(tmp_path)
    torch.save({**made.tensors, "embed_tokens.weight": EMBEDDING}, tmp_path / "pytorch_model.bin")
    found, _ = open_head(tmp_path, FIT)
    same(made, found)
    assert found.kind == "eagle"


@pytest.mark.parametrize(
    "rename",
    [lambda n: n, lambda n: f"model.{n}", lambda n: n.replace("midlayer.", "layers.0."), lambda n: f"draft_model.{n}"],
)
def test_spellings_of_eagle_3(tmp_path, rename):
    made = head()
    safeai.write(made, tmp_path, LAYERS, rows)
    held = load_file(tmp_path / "model.safetensors")
    save_file({rename(name): value for name, value in held.items()}, tmp_path / "model.safetensors")
    same(made, open_head(tmp_path, FIT)[0])


def test_layer_numbers_of_eagle_config_are_of_outputs(tmp_path):
    safeai.write(head(taps=(1, 4)), tmp_path, LAYERS, rows)
    said = json.loads((tmp_path / "config.json").read_text())
    named = said.pop("eagle_aux_hidden_state_layer_ids")
    said["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [n - 1 for n in named]}
    (tmp_path / "config.json").write_text(json.dumps(said))
    assert open_head(tmp_path, FIT)[0].config.taps == (1, 4)


def test_an_old_speculators_file_without_the_residual_flag_norms_before(tmp_path):
    speculators.write(head(), tmp_path, rows, EMBEDDING, "tiny")
    said = json.loads((tmp_path / "config.json").read_text())
    del said["norm_before_residual"]
    (tmp_path / "config.json").write_text(json.dumps(said))
    assert open_head(tmp_path, FIT)[0].config.norm_before_residual


@pytest.mark.parametrize(
    ("fit", "match"),
    [
        (Fit("t", 16, 30, LAYERS, ""), "expects hidden size 12, t has 16"),
        (Fit("t", 12, 40, LAYERS, ""), "expects vocabulary 30, t has 40"),
        (Fit("t", 12, 30, 3, ""), "reads layer 4, the target has 3"),
    ],
)
def test_another_target_s_head_is_refused(tmp_path, fit, match):
    safeai.write(head(taps=(1, 4)), tmp_path, LAYERS, rows)
    with pytest.raises(LoadError, match=match):
        open_head(tmp_path, fit)


def test_a_head_of_another_target_of_the_same_sizes_is_noted(tmp_path):
    made = head()
    own.write(Head(made.config, made.tensors, made.words, "xyz"), tmp_path)
    _, notes = open_head(tmp_path, FIT)
    assert "xyz" in notes[0]
    assert "abc" in notes[0]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda t: t.pop("fc.weight"), "'fc.weight' is missing"),
        (lambda t: t.update({"strange.weight": torch.ones(2)}), "no place.*strange.weight"),
        (
            lambda t: t.update({"midlayer.mlp.up_proj.weight": torch.ones(3, 12)}),
            r"has shape \[3, 12\].*asks for \[20, 12\]",
        ),
        (lambda t: t.update({"d2t": t["d2t"] + 1}), "leads to other words"),
        (lambda t: t.update({"d2t": t["d2t"][:-1], "t2d": t["t2d"]}), "leads to other words"),
        (
            lambda t: (t.pop("t2d"), t.update({"d2t": torch.zeros(17, dtype=torch.long).fill_(20)})),
            "d2t\\[10\\] is 20, which leads to the target's id 30",
        ),
        (lambda t: (t.pop("d2t"), t.pop("t2d")), "d2t is missing"),
    ],
)
def test_damage_is_named(tmp_path, change, match):
    safeai.write(head(), tmp_path, LAYERS, rows)
    held = load_file(tmp_path / "model.safetensors")
    change(held)
    save_file(held, tmp_path / "model.safetensors")
    with pytest.raises(LoadError, match=match):
        open_head(tmp_path, FIT)


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("hidden_size", "12", "hidden_size"),
        ("num_key_value_heads", 3, "must divide"),
        ("rope_scaling", {"rope_type": "spiral"}, "not implemented"),
        ("eagle_aux_hidden_state_layer_ids", [2, "x"], "list of layer numbers"),
    ],
)
def test_odd_config_keys_are_named(tmp_path, key, value, match):
    safeai.write(head(), tmp_path, LAYERS, rows)
    said = json.loads((tmp_path / "config.json").read_text()) | {key: value}
    (tmp_path / "config.json").write_text(json.dumps(said))
    with pytest.raises(LoadError, match=match):
        open_head(tmp_path, FIT)


def test_an_unknown_speculator_is_named(tmp_path):
    speculators.write(head(), tmp_path, rows, EMBEDDING, "tiny")
    said = json.loads((tmp_path / "config.json").read_text()) | {"speculators_model_type": "dflash"}
    (tmp_path / "config.json").write_text(json.dumps(said))
    with pytest.raises(LoadError, match="dflash"):
        open_head(tmp_path, FIT)


def test_a_pickle_with_code_in_it_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("run",))

    eagle1(tmp_path)
    torch.save({"fc.weight": Evil()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(LoadError, match="tensors alone"):
        open_head(tmp_path, FIT)


@pytest.mark.parametrize(
    "write", [lambda h, p: safeai.write(h, p, LAYERS, rows), lambda h, p: medusa.write(h, p, rows, "t")]
)
def test_a_form_refuses_what_it_cannot_say(tmp_path, write):
    with pytest.raises(SpecError, match="this is mtp"):
        write(head("mtp"), tmp_path)


def test_an_empty_folder_and_a_file_are_named(tmp_path):
    with pytest.raises(LoadError, match="no weights of a head"):
        open_head(tmp_path, FIT)
    with pytest.raises(LoadError, match="not a folder"):
        open_head(tmp_path / "none", FIT)


@pytest.mark.parametrize("place", ["top", "dflash"])
def test_specforge_s_p_eagle_has_no_speculators_config(tmp_path, place):
    made = head("p-eagle", own_embedding=True)
    speculators.write(made, tmp_path, rows, EMBEDDING, "tiny")
    said = json.loads((tmp_path / "config.json").read_text())
    mask = said["mask_token_id"]
    plain = {**said["transformer_layer_config"], "architectures": ["PEagleDraftModel"]}
    plain |= {"eagle_aux_hidden_state_layer_ids": [2, 3], "norm_before_residual": False}
    plain |= {"mask_token_id": mask} if place == "top" else {"dflash_config": {"mask_token_id": mask}}
    (tmp_path / "config.json").write_text(json.dumps(plain))
    found, _ = open_head(tmp_path, FIT)
    same(made, found)
    del plain["mask_token_id" if place == "top" else "dflash_config"]
    (tmp_path / "config.json").write_text(json.dumps(plain))
    with pytest.raises(LoadError, match="mask_token_id"):
        open_head(tmp_path, FIT)
