import gguf
import pytest
import torch

from forerun.core.errors import LoadError
from forerun.weights.folder import open_checkpoint
from forerun.weights.safetensors import open_safetensors
from forerun.weights.source import Take

Kind = gguf.GGMLQuantizationType


@pytest.fixture
def take(tiny, tmp_path):
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8), "lm_head.weight": torch.ones(40, 64)}
    return Take(open_safetensors(tiny.folder(tmp_path / "m", tiny.weights() | extra)))


def test_takes_by_name_shape_and_type(take):
    got = take.take("model.norm.weight", (64,), torch.bfloat16, "cpu")
    assert got.dtype == torch.bfloat16
    assert got.shape == (64,)


def test_missing_and_misshapen_are_named(take):
    with pytest.raises(LoadError, match=r"'model\.layers\.9\.x' is missing"):
        take.take("model.layers.9.x", (1,), torch.float32, "cpu")
    with pytest.raises(LoadError, match=r"'model\.norm\.weight' has shape \[64\], the config asks for \[65\]"):
        take.take("model.norm.weight", (65,), torch.float32, "cpu")


def test_left_over_tensors_are_named_and_harmless_ones_are_not(take, tiny):
    for name, tensor in tiny.weights().items():
        if name != "model.norm.weight":
            take.take(name, tuple(tensor.shape), torch.float32, "cpu")
    with pytest.raises(LoadError, match=r"1 tensor\(s\).*model\.norm\.weight"):
        take.finish()
    assert take.has("model.norm.weight")
    assert not take.has("nothing")
    take.take("model.norm.weight", (64,), torch.float32, "cpu")
    take.finish()


def test_raw_blocks_count_as_taken_and_floats_do_not(tiny, tmp_path):
    names = sorted(tiny.weights())
    take = Take(open_checkpoint(tiny.gguf(tmp_path / "a.gguf", kind=lambda name: Kind.Q8_0)).tensors)
    for name in names:
        shape = tuple(tiny.weights()[name].shape)
        raw = take.take_raw(name, shape)
        assert (raw is None) == (len(shape) == 1)
        if raw is not None:
            assert raw[0] == "Q8_0"
            assert raw[1].shape == (shape[0], shape[1] // 32 * 34)
    norms = [name for name in names if "norm" in name]
    with pytest.raises(LoadError, match=rf"^{len(norms)} tensor"):
        take.finish()
    for name in norms:
        assert take.take_stored(name, (64,)).dtype == torch.float32
    take.finish()
    with pytest.raises(LoadError, match=r"'x' is missing"):
        take.take_raw("x", (1,))
    with pytest.raises(LoadError, match=r"has shape \[64\], the config asks for \[2\]"):
        take.take_raw("model.norm.weight", (2,))


def test_folders_hold_no_blocks(take):
    assert take.take_raw("model.norm.weight", (64,)) is None
