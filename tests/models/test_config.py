import pytest
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from forerun.core.errors import LoadError
from forerun.models.config import ModelConfig

BASE = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "vocab_size": 40,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
}  # fmt: skip


def read(**changes):
    return ModelConfig.from_hf(BASE | changes)


def test_plain_llama():
    got = read()
    assert (got.arch.name, got.head_dim, got.windows, got.tied) == ("llama", 16, (None,) * 3, False)
    assert not (got.qkv_bias)
    assert not (got.o_bias)
    assert not (got.mlp_bias)
    assert "q_norm" not in got.arch.layer
    assert got.rope.theta == 10000.0
    assert got.rope.kind == "default"


@pytest.mark.parametrize("kind", [LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config])
def test_what_transformers_writes(kind):
    sizes = {k: v for k, v in BASE.items() if k != "model_type"}
    theirs = kind(**sizes, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}, tie_word_embeddings=True)
    got = ModelConfig.from_hf(theirs.to_dict())
    assert got.arch.name == theirs.model_type
    assert got.tied
    assert got.rope.theta == 5000.0
    assert got.head_dim == getattr(theirs, "head_dim", 16)
    assert got.qkv_bias == (kind is Qwen2Config)
    assert ("q_norm" in got.arch.layer) == (kind is Qwen3Config)
    assert not got.o_bias
    assert got.windows == ((4096,) * 3 if kind is MistralConfig else (None,) * 3)


def test_windows():
    assert read(model_type="mistral", sliding_window=None).windows == (None,) * 3
    assert read(model_type="mistral", sliding_window=8).windows == (8,) * 3
    sliding = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8}
    assert read(**sliding, max_window_layers=1).windows == (None, 8, 8)
    kinds = ["full_attention", "sliding_attention", "full_attention"]
    assert read(**sliding, layer_types=kinds).windows == (None, 8, None)
    assert read(**sliding | {"use_sliding_window": False}).windows == (None,) * 3
    with pytest.raises(LoadError, match="layer_types"):
        read(**sliding, layer_types=["full_attention"])


def test_biases():
    got = read(attention_bias=True, mlp_bias=True)
    assert got.qkv_bias
    assert got.o_bias
    assert got.mlp_bias
    got = read(attention_bias=True, attention_out_bias=False)
    assert got.qkv_bias
    assert not got.o_bias


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                                 "intermediate_size", "max_position_embeddings"])  # fmt: skip
@pytest.mark.parametrize("value", [None, True, "64", 0, -1, 2.0, 10**30, [64]])
def test_sizes(key, value):
    with pytest.raises(LoadError, match=rf"{key} is .*allowed: an integer from"):
        read(**{key: value})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "gemma"}, "'gemma'.*llama, mistral, qwen2, qwen3, gemma3_text"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"),
        ({"architectures": [["x"]]}, "architectures"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3.*divisor"),
        ({"hidden_size": 66}, "hidden_size is 66.*multiple of num_attention_heads = 4"),
        ({"head_dim": 15}, "head_dim is 15.*even"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'.*'silu'"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1.*true or false"),
        ({"rope_theta": float("inf")}, "rope_theta"),
        ({"rope_scaling": [1]}, "rope_scaling"),
        ({"rope_scaling": {"type": "longrope"}}, "'longrope'.*yarn"),
        ({"rope_scaling": {"type": "linear"}}, r"rope_scaling\.factor is None"),
        ({"rope_scaling": {"type": "linear", "factor": True}}, r"rope_scaling\.factor is True"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
)
def test_refusals_name_the_key(changes, says):
    with pytest.raises(LoadError, match=says):
        read(**changes)


@pytest.mark.parametrize("kind", ["linear", "dynamic", "llama3", "yarn"])
@pytest.mark.parametrize("factor", [1e-300, 0.0, 0.99, -2.0, float("inf"), float("nan"), 1e300, "2", None])
def test_266_a_rotary_factor_that_cannot_be_meant_is_refused(kind, factor):
    rope = {"rope_type": kind, "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind == "yarn" and factor is None:
        assert read(rope_scaling=rope).rope.factor == 1.0  # the lengths say it
        return
    with pytest.raises(LoadError, match=r"rope_scaling\.factor is "):
        read(rope_scaling=rope)
