import math

import numpy as np
import pytest
import torch

from forerun.core.errors import LoadError
from forerun.models.config import ModelConfig
from forerun.models.rope import inv_freq
from forerun.weights.folder import open_checkpoint


def _config(path):
    return ModelConfig.from_hf(open_checkpoint(path).config)


def test_same_description_as_the_folder(tiny, tmp_path):
    ours, theirs = _config(tiny.gguf(tmp_path / "a.gguf")), _config(tiny.folder(tmp_path / "f"))
    assert ours.norm_eps == pytest.approx(theirs.norm_eps)
    assert {k: getattr(ours, k) for k in ours.__slots__ if k != "norm_eps"} == {
        k: getattr(theirs, k) for k in theirs.__slots__ if k != "norm_eps"
    }


def test_tied_is_the_absence_of_a_head(tiny, tmp_path):
    assert _config(tiny.gguf(tmp_path / "a.gguf")).tied
    assert not _config(tiny.gguf(tmp_path / "b.gguf", tiny.weights(tied=False))).tied
    bare = tiny.weights()
    del bare["model.embed_tokens.weight"]
    with pytest.raises(LoadError, match=r"token_embd\.weight"):
        open_checkpoint(tiny.gguf(tmp_path / "c.gguf", bare))


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "context_length", "attention.head_count"])
def test_missing_keys_are_named(key, tiny, tmp_path):
    with pytest.raises(LoadError, match=f"llama.{key}"):
        open_checkpoint(tiny.gguf(tmp_path / "a.gguf", omit=(key,)))


def test_biases_by_presence(tiny, tmp_path):
    config = _config(tiny.gguf(tmp_path / "a.gguf", tiny.weights(bias=True)))
    assert config.qkv_bias
    assert not config.o_bias
    assert not config.mlp_bias


def test_other_architectures_are_refused(tiny, tmp_path):
    with pytest.raises(LoadError, match=r"'gemma2' \(allowed: llama, qwen2, qwen3, gemma3\)"):
        open_checkpoint(tiny.gguf(tmp_path / "a.gguf", arch="gemma2"))
    with pytest.raises(LoadError, match="mixture-of-experts"):
        open_checkpoint(tiny.gguf(tmp_path / "b.gguf", edit=lambda w: w.add_expert_count(8)))


def test_scalings(tiny, tmp_path):
    def yarn(writer):
        writer.add_string("llama.rope.scaling.type", "yarn")
        writer.add_float32("llama.rope.scaling.factor", 4.0)
        writer.add_uint32("llama.rope.scaling.original_context_length", 64)

    rope = _config(tiny.gguf(tmp_path / "a.gguf", edit=yarn)).rope
    assert (rope.kind, rope.factor, rope.original_max_len) == ("yarn", 4.0, 64)

    def linear(writer):
        writer.add_string("llama.rope.scaling.type", "linear")
        writer.add_float32("llama.rope.scaling.factor", 2.0)

    assert _config(tiny.gguf(tmp_path / "b.gguf", edit=linear)).rope.kind == "linear"

    def longrope(writer):
        writer.add_string("llama.rope.scaling.type", "longrope")

    with pytest.raises(LoadError, match="longrope"):
        open_checkpoint(tiny.gguf(tmp_path / "c.gguf", edit=longrope))


def _factors(theta, dim, factor, original):
    """As the published converter computes rope_freqs.weight."""
    base = 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
    out = []
    for freq in base.tolist():
        wave = 2 * math.pi / freq
        if wave < original / 4:
            out.append(1.0)
        elif wave > original:
            out.append(factor)
        else:
            smooth = (original / wave - 1) / 3
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(out, dtype=np.float32)


def test_llama3_scaling_is_recognised_by_its_table(tiny, tmp_path):
    table = _factors(500000.0, 16, 8.0, 8192)

    def edit(writer):
        writer.add_key_length(16)
        del writer.kv_data[0]["llama.rope.freq_base"]
        writer.add_float32("llama.rope.freq_base", 500000.0)
        writer.add_tensor("rope_freqs.weight", table)

    checkpoint = open_checkpoint(tiny.gguf(tmp_path / "a.gguf", edit=edit))
    rope = ModelConfig.from_hf(checkpoint.config).rope
    assert (rope.kind, rope.factor, rope.original_max_len) == ("llama3", 8.0, 8192)
    plain = 1.0 / 500000.0 ** (torch.arange(0, 16, 2) / 16)
    torch.testing.assert_close(inv_freq(rope, 16, 128)[0], plain / torch.from_numpy(table))
    assert not any("rope" in n for n in checkpoint.tensors.names())

    table = table * 1.5
    with pytest.raises(LoadError, match="rope_freqs"):
        open_checkpoint(tiny.gguf(tmp_path / "b.gguf", edit=edit))
