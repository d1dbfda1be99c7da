"""Damaged files: whatever the bytes say, only our own errors come out, soon and without eating memory."""

import json
import shutil
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers.models.auto import modeling_auto  # noqa: F401  # errors look there; its import is the slow part

from forerun.core.errors import CapacityError, LoadError, SpecError
from forerun.models.config import ModelConfig
from forerun.weights.folder import open_checkpoint

OURS = (LoadError, SpecError, CapacityError)
FUZZ = settings(max_examples=120, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
NASTY = st.sampled_from([0, 1, 2, 3, 8, 9, 0x7F, 0x80, 0xFF])
WORDS = st.sampled_from([0, 1, 8, 9, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1])


def edits(size):
    """A cut, or a few overwritten bytes or eight-byte words, mostly in the header."""
    near = st.one_of(st.integers(0, min(size, 4000) - 1), st.integers(0, size - 1))
    change = st.one_of(
        st.tuples(near, st.one_of(NASTY, st.integers(0, 255)).map(lambda b: bytes([b]))),
        st.tuples(near, WORDS.map(lambda w: struct.pack("<Q", w))),
    )
    return st.tuples(st.one_of(st.just(size), near), st.lists(change, min_size=0, max_size=4))


def edited(whole, edit):
    keep, changes = edit
    data = bytearray(whole)
    for at, new in changes:
        data[at : at + len(new)] = new[: len(data) - at]
    return bytes(data[:keep])


def use(path):
    """Everything a loader would do with a checkpoint."""
    said = None
    tracemalloc.start()
    try:
        checkpoint = open_checkpoint(path)
        ModelConfig.from_hf(checkpoint.config)
        for name in checkpoint.tensors.names():
            checkpoint.tensors.load(name)
    except OURS as error:
        said = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 40 << 20
    assert said is None or (said.strip() and "\n" not in said)
    return said is None


@pytest.fixture(scope="module")
def files(tiny, tmp_path_factory):
    root = tmp_path_factory.mktemp("fuzz")

    def edit(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(["a", "b", "c"])
        writer.add_token_types([1, 1, 1])

    tiny.gguf(root / "a.gguf", edit=edit)
    tiny.folder(root / "one")
    tiny.folder(root / "many", shards=2)
    assert use(root / "a.gguf")
    assert use(root / "one")
    assert use(root / "many")
    return root


@FUZZ
@given(data=st.data())
def test_gguf(data, files):
    whole = (files / "a.gguf").read_bytes()
    path = files / "b.gguf"
    path.write_bytes(edited(whole, data.draw(edits(len(whole)))))
    use(path)


@FUZZ
@given(data=st.data())
def test_safetensors(data, files):
    folder = files / "broken"
    shutil.copytree(files / "one", folder, dirs_exist_ok=True)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(edited(whole, data.draw(edits(len(whole)))))
    use(folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
    | st.sampled_from(["llama", "yarn", "linear", "dynamic", "llama3", "default", 1, 2, 4, 64, 0.5, 10**400]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["rope_type", "type", "factor", "rope_theta", "x"]), inner, max_size=4),
    max_leaves=6,
)  # fmt: skip
KEYS = [
    "model_type", "architectures", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "rope_theta",
    "vocab_size", "num_hidden_layers", "rope_scaling", "rope_parameters", "sliding_window", "use_sliding_window",
    "layer_types", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "attention_bias", "eos_token_id",
    "quantization_config", "hidden_act", "partial_rotary_factor", "original_max_position_embeddings",
]  # fmt: skip


@settings(max_examples=250, deadline=2000, suppress_health_check=list(HealthCheck))
@given(changes=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3), family=st.sampled_from(["llama", "qwen3"]))
def test_config_values(changes, family, tiny):
    from forerun.models.rope import inv_freq

    try:
        config = ModelConfig.from_hf(tiny.config | {"architectures": None, "model_type": family} | changes)
    except OURS as error:
        said = str(error)
    else:
        said = ""
    assert len(said) < 600
    if said:
        return
    freq, scale = inv_freq(config.rope, config.head_dim, config.max_len)
    assert freq.isfinite().all()
    assert scale > 0
    assert len(config.windows) == config.layers <= 1024


@FUZZ
@given(data=st.data(), name=st.sampled_from(["config.json", "model.safetensors.index.json"]))
def test_json_bytes(data, name, files):
    folder = files / "torn"
    shutil.copytree(files / "many", folder, dirs_exist_ok=True)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(edited(whole, data.draw(edits(len(whole)))))
    use(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, "{" * 10, "null", "[]", '"x"', "", "1e999", '{"weight_map": 3}'])
def test_json_of_other_shapes(text, files):
    for name in ("config.json", "model.safetensors.index.json", "generation_config.json"):
        folder = files / "shapes"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(files / "many", folder)
        (folder / name).write_text(text)
        assert not use(folder) or (name == "generation_config.json" and isinstance(json.loads(text), dict))
