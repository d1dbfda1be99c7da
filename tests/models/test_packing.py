"""Packed models against their sources: every role, row order, format; and what is kept beside the weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("forerun.native._ext", reason="the native extension was not built")

from forerun.core.errors import LoadError
from forerun.models.config import ModelConfig
from forerun.models.opening import pack_now
from forerun.models.packing import in_turn
from forerun.native import ext
from forerun.quant.error import relative
from forerun.testing.tiny import Tiny, write_folder, write_gguf
from forerun.weights.folder import open_checkpoint
from forerun.weights.gguf import open_gguf

LAYER = "model.layers.1."
WIDE = dict(hidden=64, heads=4, kv_heads=2, head_dim=16, inner=96)  # rows that fit GGUF's blocks


def values(model, name):
    entry = model.matrix(name)
    raw = model.arena.view()[entry.offset : entry.offset + entry.nbytes]
    return torch.from_numpy(ext.unpack(entry.format, entry.rows, entry.cols, raw))


def in_roles(source, config):
    """What a packed model must hold, as floats, from the tensors of a source."""
    load = lambda name: source.load(f"{LAYER}{name}").float()
    inner = config.intermediate_size
    padded = -(-inner // 16) * 16
    gate, up = (torch.zeros(padded, config.hidden_size) for _ in "gu")
    gate[:inner], up[:inner] = load("mlp.gate_proj.weight"), load("mlp.up_proj.weight")
    down = torch.zeros(config.hidden_size, padded)
    down[:, :inner] = load("mlp.down_proj.weight")
    return {
        "head": source.load("model.embed_tokens.weight" if config.tied else "lm_head.weight").float(),
        "1.qkv": torch.cat([load(f"self_attn.{part}_proj.weight") for part in "qkv"]),
        "1.o": load("self_attn.o_proj.weight"),
        "1.gate_up": torch.cat([torch.cat(pair) for pair in zip(gate.split(16), up.split(16), strict=True)]),
        "1.down": down,
    }


CLOSE = {"f32": 0, "bf16": 3e-3, "int8": 8e-3, "q4": 0.1, "nf4": 0.11}


@pytest.mark.parametrize("weights", CLOSE)
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_folder_in_every_format(family, weights, tmp_path):
    tiny = Tiny(family, inner=40, tied=family != "qwen3", vocab=301)
    checkpoint = open_checkpoint(write_folder(tmp_path / "m", tiny))
    model = pack_now(checkpoint, weights)
    config = ModelConfig.from_hf(model.config)
    assert config == ModelConfig.from_hf(checkpoint.config)
    for name, expected in in_roles(checkpoint.tensors, config).items():
        assert values(model, name).shape == expected.shape, name
        assert relative(values(model, name), expected) <= CLOSE[weights], name
    assert ("embedding" in model) == (not config.tied)
    load = checkpoint.tensors.load
    vectors = {"norm": "model.norm.weight", "0.attention_norm": "model.layers.0.input_layernorm.weight"}
    vectors["1.mlp_norm"] = f"{LAYER}post_attention_layernorm.weight"
    if family == "qwen3":
        vectors |= {f"1.{part}_norm": f"{LAYER}self_attn.{part}_norm.weight" for part in "qk"}
    for name, tensor in vectors.items():
        np.testing.assert_array_equal(model.vector(name), load(tensor).numpy())
    assert ("1.qkv.bias" in model) == (family == "qwen2")
    if family == "qwen2":
        biases = torch.cat([load(f"{LAYER}self_attn.{part}_proj.bias") for part in "qkv"])
        np.testing.assert_array_equal(model.vector("1.qkv.bias"), biases.numpy())
    per_layer = 8 if family == "qwen3" else 7 if family == "qwen2" else 6
    assert len(model.entries) == 2 * per_layer + 2 + (not config.tied)
    assert sum(model.formats.values()) == 2 * 4 + 1 + (not config.tied)
    assert (model.weights, model.fingerprint, model.eos_ids) == (weights, checkpoint.fingerprint, checkpoint.eos_ids)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_auto_keeps_what_a_gguf_holds(kind, family, tmp_path):
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", Tiny(family, **WIDE), quantization=kind))
    model = pack_now(checkpoint, "auto")
    format = {"F16": "bf16", "Q5_0": "int8", "Q5_1": "int8"}.get(kind, kind.lower())
    assert model.formats == {format: 9}
    assert len(model.notes) == (kind in ("F16", "Q5_0", "Q5_1"))
    for name, expected in in_roles(checkpoint.tensors, ModelConfig.from_hf(model.config)).items():
        if kind in ("F16", "Q5_0", "Q5_1"):
            assert relative(values(model, name), expected) < CLOSE["int8"]
            assert kind in model.notes[0]
        else:  # the file's own numbers, to the bit
            assert torch.equal(values(model, name), expected), name


@pytest.mark.parametrize("weights", ["f32", "bf16", "int8", "q4", "nf4"])
def test_a_quantised_gguf_in_every_format(weights, tmp_path):
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", Tiny(**WIDE), quantization="Q8_0"))
    model = pack_now(checkpoint, weights)
    for name, expected in in_roles(checkpoint.tensors, ModelConfig.from_hf(model.config)).items():
        assert relative(values(model, name), expected) <= CLOSE[weights], name
    head = {"f32": "f32", "bf16": "bf16", "int8": "int8"}.get(weights, "q8_0")
    assert model.matrix("head").format == head
    assert any("q8_0 is kept" in reason for reason in model.reasons) == (head == "q8_0")


def test_biases_of_the_gated_product_move_with_their_rows(tmp_path):
    class Biased(Tiny):
        def tensors(self):
            out = super().tensors()
            for i in range(self.layers):
                for part, size in (("mlp.gate", 40), ("mlp.up", 40), ("mlp.down", 32), ("self_attn.o", 32)):
                    name = f"model.layers.{i}.{part}_proj.bias"
                    out[name] = torch.randn(size, generator=torch.Generator().manual_seed(len(name)))
                out |= {
                    f"model.layers.{i}.self_attn.{p}_proj.bias": torch.ones(n)
                    for p, n in zip("qkv", (32, 16, 16), strict=True)
                }
            return out

    tiny = Biased(inner=40, extra={"mlp_bias": True, "attention_bias": True})
    model = pack_now(open_checkpoint(write_folder(tmp_path / "m", tiny)), "f32")
    tensors = tiny.tensors()
    gate, up = (torch.cat((tensors[f"{LAYER}mlp.{p}_proj.bias"], torch.zeros(8))) for p in ("gate", "up"))
    expected = torch.stack((gate.view(-1, 16), up.view(-1, 16)), 1).flatten()
    np.testing.assert_array_equal(model.vector("1.gate_up.bias"), expected.numpy())
    np.testing.assert_array_equal(model.vector("1.down.bias"), tensors[f"{LAYER}mlp.down_proj.bias"].numpy())
    np.testing.assert_array_equal(model.vector("1.o.bias"), tensors[f"{LAYER}self_attn.o_proj.bias"].numpy())


def test_rows_in_turn_by_hand():
    assert in_turn(16).tolist() == [*range(32)]
    assert in_turn(17).tolist() == [*range(16), *range(17, 33), 16, *[-1] * 15, 33, *[-1] * 15]


def test_matrices_larger_than_a_piece(tmp_path, monkeypatch):
    monkeypatch.setattr("forerun.models.packing._CHUNK", 32 * 32)
    checkpoint = open_checkpoint(write_folder(tmp_path / "m", Tiny(inner=40)))
    model = pack_now(checkpoint, "f32")
    for name, expected in in_roles(checkpoint.tensors, ModelConfig.from_hf(model.config)).items():
        assert torch.equal(values(model, name), expected), name


class Spoiled(Tiny):
    """Has one number that is none."""

    name, value = f"{LAYER}mlp.up_proj.weight", float("nan")

    def tensors(self):
        out = super().tensors()
        out[self.name].view(-1)[7] = self.value
        return out


class SpoiledNorm(Spoiled):
    name, value = "model.norm.weight", float("inf")


class Huge(Spoiled):
    value = 3.4e38


@pytest.mark.parametrize("weights", CLOSE)
def test_numbers_that_are_none_are_named(weights, tmp_path):
    for kind, says in ((Spoiled, "up_proj.weight holds NaN or infinity"), (SpoiledNorm, r"model\.norm\.weight holds")):
        checkpoint = open_checkpoint(write_folder(tmp_path / kind.__name__, kind()))
        with pytest.raises(LoadError, match=says):
            pack_now(checkpoint, weights)


@pytest.mark.parametrize(("weights", "says"), [("bf16", "beyond bfloat16"), ("q4", "beyond half precision")])
def test_numbers_that_a_format_cannot_hold_are_refused(weights, says, tmp_path):
    checkpoint = open_checkpoint(write_folder(tmp_path / "m", Huge()))
    with pytest.raises(LoadError, match=rf"up_proj\.weight.*{says}.*f32 or int8"):
        pack_now(checkpoint, weights)
    for fine in ("f32", "int8", "nf4"):
        assert bool(values(pack_now(checkpoint, fine), "1.gate_up").isfinite().all())


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1"])
def test_a_file_s_own_scales_must_be_numbers(kind, tmp_path):
    path = write_gguf(tmp_path / "m.gguf", Tiny(**WIDE), quantization=kind)
    start = open_gguf(path).tensors["blk.1.ffn_down.weight"].start
    raw = bytearray(path.read_bytes())
    raw[start : start + 2] = np.float16([np.nan]).tobytes()
    path.write_bytes(raw)
    for weights in ("auto", "int8"):
        with pytest.raises(LoadError, match=r"1\.mlp\.down_proj\.weight holds NaN"):
            pack_now(open_checkpoint(path), weights)


class Short(Tiny):
    def tensors(self):
        return {name: tensor for name, tensor in super().tensors().items() if name != f"{LAYER}self_attn.o_proj.weight"}


class Long(Tiny):
    def tensors(self):
        return {**super().tensors(), "model.layers.0.mlp.experts.weight": torch.ones(2, 2)}


class Bent(Tiny):
    def tensors(self):
        return {**super().tensors(), f"{LAYER}mlp.down_proj.weight": torch.ones(32, 47)}


@pytest.mark.parametrize(
    ("kind", "says"),
    [(Short, "o_proj.weight' is missing"), (Long, "no place in the model: .*experts"), (Bent, r"shape \[32, 47\]")],
)
def test_tensors_without_a_place_and_places_without_a_tensor(kind, says, tmp_path):
    checkpoint = open_checkpoint(write_folder(tmp_path / "m", kind()))
    with pytest.raises(LoadError, match=says):
        pack_now(checkpoint, "auto")
