import gguf
import numpy as np
import pytest
import torch

from forerun.arch import FAMILIES
from forerun.weights.dequant import rows_of
from forerun.weights.folder import open_checkpoint
from forerun.weights.names import hf_name, unpermute

Kind = gguf.GGMLQuantizationType


def test_every_weight_comes_back_under_its_name_in_its_order(tiny, tmp_path):
    tensors = tiny.weights(tied=False, bias=True)
    source = open_checkpoint(tiny.gguf(tmp_path / "a.gguf", tensors)).tensors
    assert source.names() == set(tensors)
    for name, tensor in tensors.items():
        assert source.shape(name) == tuple(tensor.shape)
        assert torch.equal(source.load(name), tensor), name


def test_qwen_files_are_not_permuted(tiny, tmp_path):
    tensors = tiny.weights(bias=True)
    source = open_checkpoint(tiny.gguf(tmp_path / "a.gguf", tensors, arch="qwen2")).tensors
    assert all(torch.equal(source.load(n), t) for n, t in tensors.items())


def test_names():
    qwen3 = FAMILIES["qwen3"].layer
    assert hf_name("blk.12.attn_q_norm.weight", qwen3) == "model.layers.12.self_attn.q_norm.weight"
    assert hf_name("blk.3.ffn_gate.bias", qwen3) == "model.layers.3.mlp.gate_proj.bias"
    assert hf_name("output_norm.weight", qwen3) == "model.norm.weight"
    assert hf_name("blk.0.ffn_gate_exps.weight", qwen3) == "blk.0.ffn_gate_exps.weight"


def test_unpermute_by_hand():
    assert unpermute(torch.tensor([0, 1, 2, 3, 10, 11, 12, 13]), 2).tolist() == [0, 2, 1, 3, 10, 12, 11, 13]


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_raw_blocks_come_in_the_same_rows_as_floats(arch, tiny, tmp_path):
    kinds = {"q_proj": "Q4_0", "k_proj": "Q8_0", "v_proj": "Q4_1", "up_proj": "Q5_1", "o_proj": "BF16"}

    def kind(name):
        return Kind[next((kinds[part] for part in kinds if part in name), "F32")]

    source = open_checkpoint(tiny.gguf(tmp_path / "a.gguf", arch=arch, kind=kind)).tensors
    held = {}
    for name in source.names():
        got = source.raw(name)
        if got is not None:
            held[name.split(".")[-2]] = got[0]
            assert got[1].shape[0] == source.shape(name)[0]
            np.testing.assert_array_equal(rows_of(*got).numpy(), source.load(name).numpy())
    assert held == {part: name for part, name in kinds.items() if name != "BF16"}
