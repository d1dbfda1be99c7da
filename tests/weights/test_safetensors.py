import json

import pytest
import torch
from safetensors.torch import save_file

from forerun.core.errors import LoadError
from forerun.weights.safetensors import open_safetensors


@pytest.mark.parametrize("shards", [1, 3])
def test_all_tensors(shards, tiny, tmp_path):
    tensors = tiny.weights()
    source = open_safetensors(tiny.folder(tmp_path / "m", tensors, shards=shards))
    assert source.names() == set(tensors)
    assert all(torch.equal(source.load(n), t) and source.shape(n) == t.shape for n, t in tensors.items())


def test_a_missing_and_a_cut_shard_are_named(tiny, tmp_path):
    folder = tiny.folder(tmp_path / "m", shards=3)
    shard = folder / "model-00002-of-00003.safetensors"
    whole = shard.read_bytes()
    for keep in (len(whole) - 1, len(whole) // 2, 40, 5, 0):
        shard.write_bytes(whole[:keep])
        with pytest.raises(LoadError, match=r"model-00002.*cut short"):
            open_safetensors(folder)
    shard.unlink()
    with pytest.raises(LoadError, match=r"model-00002-of-00003\.safetensors is missing"):
        open_safetensors(folder)


def test_a_listed_but_absent_tensor_is_named(tiny, tmp_path):
    folder = tiny.folder(tmp_path / "m", shards=2)
    index = folder / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    listed["weight_map"]["model.extra"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(listed))
    with pytest.raises(LoadError, match=r"'model\.extra' is listed"):
        open_safetensors(folder)


@pytest.mark.parametrize("place", ["../x.safetensors", "/etc/passwd", 3, "a/b"])
def test_shards_stay_in_the_folder(place, tiny, tmp_path):
    folder = tiny.folder(tmp_path / "m", shards=2)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": place}}))
    with pytest.raises(LoadError, match="a file name in that folder"):
        open_safetensors(folder)


def test_types(tmp_path):
    save_file({"h": torch.ones(2, dtype=torch.bfloat16), "i": torch.ones(2, dtype=torch.int8)},
              tmp_path / "model.safetensors")  # fmt: skip
    source = open_safetensors(tmp_path)
    assert source.load("h").dtype == torch.bfloat16
    with pytest.raises(LoadError, match="'i' has type I8"):
        source.load("i")


def test_pickles_are_not_opened(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(LoadError, match="convert it"):
        open_safetensors(tmp_path)
