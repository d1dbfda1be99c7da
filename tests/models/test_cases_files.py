"""Files whose config and tensors do not agree, or that store a model in another way, by the numbers of
docs/failures.md: they load as transformers loads them, or as the tensors say, or are refused by name."""

from __future__ import annotations

import json

import pytest
import torch
from families import text
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from forerun.core.draft import Tree
from forerun.core.errors import LoadError
from forerun.core.params import SamplingParams
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.models.opening import pack_now
from forerun.native import ext
from forerun.targets.load import load
from forerun.targets.native_runner import load as load_native
from forerun.testing.tiny import Tiny, write_folder, write_gguf
from forerun.weights.folder import open_checkpoint

TOKENS = text(9)
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def rows(path) -> list[torch.Tensor]:
    """The row after a few tokens on each of our runtimes."""
    checkpoint = open_checkpoint(path)
    targets = [load(checkpoint)]
    if not ext.why_not():
        targets.append(load_native(pack_now(checkpoint, "f32")))
    found = []
    for target in targets:
        seq = Seq(0, TOKENS, SamplingParams(), 64)
        target.begin(seq)
        found.append(target.score([Item(seq, 0, len(TOKENS) - 1, Tree.root(seq.last))]).raw(0, 0))
    return found


def theirs(path) -> torch.Tensor:
    """The same row from transformers."""
    with torch.inference_mode():
        return AutoModelForCausalLM.from_pretrained(path).eval()(torch.tensor([TOKENS])).logits[0, -1]


def check(path, expected) -> None:
    for row in rows(path):
        torch.testing.assert_close(row, expected[: len(row)], rtol=1e-4, atol=1e-4)


def folder(path, tiny=None, tensors=None, drop=(), **config):
    """A model folder with other tensors, and config values of its own."""
    tiny = tiny or Tiny()
    write_folder(path, tiny, tokenizer=False)
    said = {key: value for key, value in {**tiny.config(), **config}.items() if key not in drop}
    (path / "config.json").write_text(json.dumps(said))
    save_file(tiny.tensors() if tensors is None else tensors, path / "model.safetensors", {"format": "pt"})
    return path


def noise(*shape, seed=1):
    return 0.3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_205_a_head_of_its_own_is_not_tied(tmp_path):
    tensors = Tiny().tensors()
    for name, head in (("other", 0.5 * tensors[EMBEDDING]), ("one value", tensors[EMBEDDING].clone())):
        if name == "one value":
            head[-1, -1] += 1
        path = folder(tmp_path / name, tensors={**tensors, HEAD: head})
        checkpoint = open_checkpoint(path)
        assert checkpoint.config["tie_word_embeddings"] is False
        assert "tie_word_embeddings" in checkpoint.notes[0]
        assert any("tie_word_embeddings" in note for note in pack_now(checkpoint, "f32").notes)
        check(path, theirs(path))
    same = folder(tmp_path / "same", tensors={**tensors, HEAD: tensors[EMBEDDING].clone()})
    assert open_checkpoint(same).config["tie_word_embeddings"] is True
    assert not open_checkpoint(same).notes
    check(same, theirs(same))


BIASES = {
    "attention_bias": {"self_attn.q": 32, "self_attn.k": 16, "self_attn.v": 16, "self_attn.o": 32},
    "mlp_bias": {"mlp.gate": 48, "mlp.up": 48, "mlp.down": 32},
}


@pytest.mark.parametrize("flag", BIASES)
def test_205_biases_that_are_there_count(flag, tmp_path):
    tensors = Tiny().tensors()
    for i in range(2):
        tensors |= {f"model.layers.{i}.{part}_proj.bias": noise(n, seed=n) for part, n in BIASES[flag].items()}
    silent = folder(tmp_path / "silent", tensors=tensors, **{flag: False})
    expected = theirs(folder(tmp_path / "said", tensors=tensors, **{flag: True}))
    assert flag in open_checkpoint(silent).notes[0]
    check(silent, expected)
    assert not open_checkpoint(tmp_path / "said").notes
    only = {name: value for name, value in tensors.items() if "o_proj.bias" not in name and "up_proj.bias" not in name}
    path = folder(tmp_path / "some", tensors=only)
    if flag == "mlp_bias":
        with pytest.raises(LoadError, match=r"up_proj\.bias' is missing"):
            rows(path)
    else:  # without one of the output: that is a form of its own
        zeros = {f"model.layers.{i}.self_attn.o_proj.bias": torch.zeros(32) for i in range(2)}
        check(path, theirs(folder(tmp_path / "zeros", tensors=only | zeros, attention_bias=True)))
    del tensors["model.layers.1." + ("self_attn.k" if flag == "attention_bias" else "mlp.gate") + "_proj.bias"]
    with pytest.raises(LoadError, match=r"layers\.1\.\w+\.\w+_proj\.bias' is missing"):
        rows(folder(tmp_path / "gap", tensors=tensors))


def test_205_biases_that_are_said_and_not_there_are_not_made_up(tmp_path):
    for config in ({"attention_bias": True}, {"mlp_bias": True}):
        with pytest.raises(LoadError, match=r"_proj\.bias' is missing"):
            rows(folder(tmp_path / next(iter(config)), **config))


@pytest.mark.parametrize(
    "wrong",
    [
        {"vocab_size": 300}, {"vocab_size": 260}, {"intermediate_size": 40}, {"num_key_value_heads": 4},
        {"num_key_value_heads": 1}, {"num_key_value_heads": None},
    ],
    ids=str,
)  # fmt: skip
def test_205_sizes_are_the_tensors(wrong, tmp_path):
    path = folder(tmp_path / "m", **wrong)
    (note,) = open_checkpoint(path).notes
    assert next(iter(wrong)) in note
    check(path, theirs(folder(tmp_path / "right")))


def test_205_a_width_that_the_config_does_not_give_is_read_off_the_tensors(tmp_path):
    tiny = Tiny(hidden=16)
    expected = theirs(folder(tmp_path / "right", tiny))
    path = folder(tmp_path / "silent", tiny, drop=("head_dim",))
    assert "head_dim" in open_checkpoint(path).notes[0]
    check(path, expected)
    qwen = Tiny("qwen3", head_dim=16)
    expected = theirs(folder(tmp_path / "qwen", qwen))
    for name, wrong in (("dim", {"head_dim": 8}), ("none", {"head_dim": None}), ("heads", {"num_attention_heads": 8})):
        path = folder(tmp_path / name, qwen, **wrong)
        assert open_checkpoint(path).notes
        check(path, expected)


def test_205_what_tensors_leave_open_is_refused_by_name(tmp_path):
    """Twice the heads or half the width: nothing in a llama's tensors says which."""
    extra = {f"model.layers.{i}.self_attn.{p}_norm.weight": torch.ones(8) for i in range(2) for p in "qk"}
    scales = {"model.layers.0.self_attn.k_scale": torch.ones(1)}
    norms = {"model.layers.0.pre_feedforward_layernorm.weight": torch.ones(32)}
    bias = {"lm_head.bias": torch.ones(264)}
    tensors = Tiny().tensors()
    for i, odd in enumerate((extra, scales, norms, bias)):
        with pytest.raises(LoadError, match=next(iter(odd)).replace(".", r"\.")):
            rows(folder(tmp_path / str(i), tensors=tensors | odd))
    with pytest.raises(LoadError, match=r"q_proj\.weight' has shape \[32, 32\], the config asks for \[64, 32\]"):
        rows(folder(tmp_path / "dim", head_dim=16))
    lacking = {name: value for name, value in Tiny("qwen3").tensors().items() if "q_norm" not in name}
    with pytest.raises(LoadError, match=r"q_norm\.weight' is missing"):
        rows(folder(tmp_path / "qwen", Tiny("qwen3"), tensors=lacking))
    for layers in (1, 3):
        with pytest.raises(LoadError, match=r"model\.layers\.[12]\."):
            rows(folder(tmp_path / f"{layers} layers", num_hidden_layers=layers))


class Biased(Tiny):
    def tensors(self):
        return super().tensors() | {f"model.layers.{i}.self_attn.o_proj.bias": noise(32) for i in range(2)}


def test_205_a_gguf_is_what_its_tensors_are(tmp_path):
    for i, tiny in enumerate((Tiny(tied=False), Biased(), Biased("qwen2"))):
        want = folder(tmp_path / str(i), tiny)
        for ours, other in zip(rows(write_gguf(tmp_path / f"{i}.gguf", tiny)), rows(want), strict=True):
            torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-4)
    from dataclasses import replace

    class Heads(Tiny):  # metadata with another count of heads than the tensors
        pass

    def lie(writer, tiny):
        true(writer, replace(tiny, kv_heads=4))

    import forerun.testing.tiny as module

    true = module._write_metadata
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_write_metadata", lie)
        path = write_gguf(tmp_path / "heads.gguf")
    assert "num_key_value_heads 4" in open_checkpoint(path).notes[0]
    for ours, other in zip(rows(path), rows(folder(tmp_path / "two")), strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-4)


def bare(tensors):
    return {name.removeprefix("model."): value for name, value in tensors.items()}


STORED = {
    "only the head": ({}, lambda t: {HEAD if name == EMBEDDING else name: value for name, value in t.items()}),
    "a bare decoder": ({}, bare),
    "a bare decoder, named so": ({"architectures": ["LlamaModel"]}, bare),
    "a bare decoder with its head": ({"tie_word_embeddings": False}, lambda t: bare(t) | {HEAD: noise(264, 32)}),
    "a bare decoder, only the head": (
        {},
        lambda t: bare({HEAD if name == EMBEDDING else name: value for name, value in t.items()}),
    ),
    "both of a pair": ({}, lambda t: t | {HEAD: t[EMBEDDING].clone()}),
}


@pytest.mark.parametrize("name", STORED)
def test_223_tied_tensors_and_bare_decoders_load_as_transformers_loads_them(name, tmp_path):
    config, store = STORED[name]
    path = folder(tmp_path / "m", tensors=store(Tiny().tensors()), **config)
    check(path, theirs(path))
    assert not open_checkpoint(path).notes


@pytest.mark.parametrize("listed", ["the absent head", "the absent embedding", "in both shards", "not at all"])
def test_223_an_index_that_is_not_exact(listed, tmp_path):
    tensors = Tiny().tensors()
    if listed == "the absent embedding":
        tensors[HEAD] = tensors.pop(EMBEDDING)
    path = folder(tmp_path / "m", tensors=tensors)
    (path / "model.safetensors").unlink()
    names = sorted(tensors)
    first, second = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    shards = {first: {name: tensors[name] for name in names[:9]}, second: {name: tensors[name] for name in names[9:]}}
    index = {name: shard for shard, held in shards.items() for name in held}
    if listed == "in both shards":
        shards[second] = {**shards[second], names[0]: tensors[names[0]].clone()}
    elif listed == "not at all":
        del index[names[3]]
    else:
        index[HEAD if listed == "the absent head" else EMBEDDING] = second
    for shard, held in shards.items():
        save_file(held, path / shard, {"format": "pt"})
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    check(path, theirs(folder(tmp_path / "whole")))
    if listed == "in both shards":
        save_file({**load_file(path / second), names[0]: tensors[names[0]] + 1}, path / second, {"format": "pt"})
        with pytest.raises(LoadError, match="differs in"):
            open_checkpoint(path)


def test_223_a_decoder_without_any_head_is_refused_by_name(tmp_path):
    for store in (lambda tensors: tensors, bare):
        path = folder(tmp_path / "m", tensors=store(Tiny().tensors()), tie_word_embeddings=False)
        with pytest.raises(LoadError, match=r"lm_head\.weight' is missing.*without a language head"):
            open_checkpoint(path)
    path = folder(tmp_path / "m", Tiny(tied=False), tensors={
        name: value for name, value in Tiny(tied=False).tensors().items() if name != EMBEDDING
    })  # fmt: skip
    with pytest.raises(LoadError, match=r"embed_tokens\.weight' is missing"):
        rows(path)
