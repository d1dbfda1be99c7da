import pytest
import torch

from forerun.core.errors import LoadError
from forerun.weights.safetensors import open_safetensors
from forerun.weights.source import Take


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
