import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from forerun.models.rope import Rope, inv_freq, tables

SCALINGS = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "truncate": False,
     "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.25},
    {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 64, "mscale": 1.0, "mscale_all_dim": 0.8},
    {"rope_type": "default"},
]  # fmt: skip


def _theirs(scaling):
    return LlamaConfig(
        hidden_size=128, num_attention_heads=2, max_position_embeddings=256,
        rope_parameters=dict(scaling) | {"rope_theta": 50000.0},
    )  # fmt: skip


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: s["rope_type"])
@pytest.mark.parametrize("style", ["old", "new"])
def test_equal_to_transformers(scaling, style):
    config = _theirs(scaling)
    new = {"rope_parameters": dict(scaling) | {"rope_theta": 50000.0}}
    old = {"rope_scaling": dict(scaling), "rope_theta": 50000.0}
    rope = Rope.from_hf(new if style == "new" else old, 256)
    module = LlamaRotaryEmbedding(config)
    got, scale = inv_freq(rope, 64, 256)
    torch.testing.assert_close(got, module.inv_freq, rtol=1e-6, atol=0)
    assert scale == pytest.approx(module.attention_scaling)
    cos, sin = tables(rope, 64, 256)
    theirs = module(torch.zeros(1, 256, 128), torch.arange(256)[None])
    torch.testing.assert_close(cos, theirs[0][0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sin, theirs[1][0], rtol=1e-5, atol=1e-5)
    assert cos.shape == (256, 64)
    assert cos.dtype == torch.float32


def test_dynamic_beyond_the_trained_length_is_theirs_at_that_length():
    rope = Rope.from_hf({"rope_scaling": {"type": "dynamic", "factor": 4.0}, "rope_theta": 50000.0}, 256)
    theirs, _ = ROPE_INIT_FUNCTIONS["dynamic"](_theirs(SCALINGS[1]), torch.device("cpu"), seq_len=1024)
    torch.testing.assert_close(inv_freq(rope, 64, 1024)[0], theirs, rtol=1e-6, atol=0)
    assert torch.equal(inv_freq(rope, 64, 200)[0], inv_freq(Rope(50000.0, 256), 64, 200)[0])


def test_original_length_at_the_top_comes_first():
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    got = Rope.from_hf({"rope_scaling": scaling, "original_max_position_embeddings": 32}, 256)
    assert got.original_max_len == 32
