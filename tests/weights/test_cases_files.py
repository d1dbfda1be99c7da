"""Files as people have them, by the numbers of docs/failures.md: split, odd in what no text depends on, or no model."""

import json
import struct

import gguf
import numpy as np
import pytest
import torch
from gguf import GGUFReader, GGUFValueType
from safetensors.torch import save_file

from forerun.core.errors import LoadError
from forerun.models.config import ModelConfig
from forerun.weights.folder import open_checkpoint

Kind = gguf.GGMLQuantizationType


def split(path, out, count, odd=()):
    """What llama.cpp's gguf-split makes of a file; `odd` are split keys of the last part, None for none."""
    reader = GGUFReader(path)
    tensors, per = reader.tensors, -(-len(reader.tensors) // count)
    out.mkdir(exist_ok=True)
    for i in range(count):
        writer = gguf.GGUFWriter(out / f"m-{i + 1:05d}-of-{count:05d}.gguf", "llama")
        if i:
            del writer.kv_data[0]["general.architecture"]
        for field in reader.fields.values() if i == 0 else ():
            if not field.name.startswith("GGUF.") and field.name != "general.architecture":
                inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
                writer.add_key_value(field.name, field.contents(), field.types[0], inner)
        keys = {"split.no": i, "split.count": count, "split.tensors.count": len(tensors)}
        keys |= {f"split.{key}": value for key, value in dict(odd).items()} if i == count - 1 else {}
        for key, value in keys.items():
            if value is not None:
                writer.add_uint32(key, value)
        for tensor in tensors[i * per : (i + 1) * per]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return out / f"m-00001-of-{count:05d}.gguf"


@pytest.mark.parametrize("count", [2, 3, 20])
def test_221_a_split_gguf_is_the_whole_one(count, tiny, tmp_path):
    whole = open_checkpoint(tiny.gguf(tmp_path / "w.gguf", kind=lambda name: Kind.Q8_0))
    first = split(tmp_path / "w.gguf", tmp_path / "parts", count)
    for path in (first, first.parent):
        got = open_checkpoint(path)
        assert got.path == first
        assert got.config == whole.config
        assert got.stored == whole.stored
        assert got.tensors.names() == whole.tensors.names()
        for name in whole.tensors.names():
            assert torch.equal(got.tensors.load(name), whole.tensors.load(name))
            raw, want = got.tensors.raw(name), whole.tensors.raw(name)
            assert (raw is None) == (want is None)
            assert raw is None or np.array_equal(raw[1], want[1])


def test_221_parts_say_what_is_wanted(tiny, tmp_path):
    path = tiny.gguf(tmp_path / "w.gguf")
    first = split(path, tmp_path / "parts", 3)
    second, third = (first.with_name(f"m-0000{i}-of-00003.gguf") for i in (2, 3))
    with pytest.raises(LoadError, match=r"part 2 of 3.*pass the first, m-00001-of-00003\.gguf"):
        open_checkpoint(second)
    for gone in ((third,), (second, third)):
        for file in gone:
            file.rename(file.with_suffix(".away"))
        with pytest.raises(LoadError, match=", ".join(file.name for file in gone)):
            open_checkpoint(first)
        for file in gone:
            file.with_suffix(".away").rename(file)
    whole = third.read_bytes()
    third.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LoadError, match=r"m-00003-of-00003.*cut short"):
        open_checkpoint(first)
    third.write_bytes(whole)
    with pytest.raises(LoadError, match="name the parts"):
        open_checkpoint(first.rename(tmp_path / "first.gguf"))
    with pytest.raises(LoadError, match="part 2 of 3"):
        open_checkpoint(first.parent)
    split(path, tmp_path / "parts", 2)
    with pytest.raises(LoadError, match=r"2 \.gguf files"):
        open_checkpoint(first.parent)


def test_221_parts_of_another_model_are_refused(tiny, tmp_path):
    path = tiny.gguf(tmp_path / "w.gguf")
    for i, odd in enumerate(({"no": 0}, {"count": 3}, {"tensors.count": 7}, {"no": None})):
        with pytest.raises(LoadError, match=r"not part 2 of the model.*split\."):
            open_checkpoint(split(path, tmp_path / str(i), 2, odd))
    more = tiny.weights() | {"model.layers.0.extra.weight": torch.ones(64)}
    first = split(path, tmp_path / "a", 2)
    other = split(tiny.gguf(tmp_path / "o.gguf", more), tmp_path / "b", 2)
    (first.parent / "m-00002-of-00002.gguf").write_bytes((other.parent / "m-00002-of-00002.gguf").read_bytes())
    with pytest.raises(LoadError, match="not part 2 of the model"):
        open_checkpoint(first)
    again = split(path, tmp_path / "c", 3)
    (again.with_name("m-00002-of-00003.gguf")).write_bytes(
        again.with_name("m-00003-of-00003.gguf").read_bytes().replace(b"split.no", b"split.xx", 1)
    )
    with pytest.raises(LoadError, match=r"split\.no is 0, expected 1"):
        open_checkpoint(again)


def _text(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def with_pair(path, key, value):
    """The file with a further pair in front, and one that keeps the tensors where they were, 32 bytes being a unit."""
    raw = path.read_bytes()
    version, tensors, count = struct.unpack_from("<IQQ", raw, 4)
    added = _text(key) + value
    filler = -(len(added) + 8 + 3 + 4 + 8) % 32
    added += _text("pad") + struct.pack("<I", 8) + _text("x" * filler)
    path.write_bytes(raw[:4] + struct.pack("<IQQ", version, tensors, count + 2) + added + raw[24:])
    return path


ARRAYS = {
    "nested": struct.pack("<IIQ", 9, 9, 2) + struct.pack("<IQ2I", 4, 2, 1, 2) + struct.pack("<IQ", 8, 1) + _text("a"),
    "nested thrice": struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 9, 1) + struct.pack("<IQB", 7, 1, 1),
    "empty": struct.pack("<IIQ", 9, 5, 0),
    "empty of an unknown type": struct.pack("<IIQ", 9, 99, 0),
    "empty of arrays": struct.pack("<IIQ", 9, 9, 0),
    "no letter": struct.pack("<I", 8) + _text(""),
    "not UTF-8": struct.pack("<I", 8) + _text(b"\xff\xfe"),
    "some not UTF-8": struct.pack("<IIQ", 9, 8, 2) + _text("a") + _text(b"\xc3"),
    "a truth of 2": struct.pack("<IB", 7, 2),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_224_metadata_that_nobody_reads_may_be_odd(name, tiny, tmp_path):
    plain = open_checkpoint(tiny.gguf(tmp_path / "a.gguf"))
    got = open_checkpoint(with_pair(tiny.gguf(tmp_path / "b.gguf"), "x.odd", ARRAYS[name]))
    assert got.config == plain.config
    assert any("x.odd" in note for note in got.notes) == (name.startswith("nested") or name == "not UTF-8")
    assert torch.equal(got.tensors.load("model.norm.weight"), plain.tensors.load("model.norm.weight"))


REQUIRED = [
    ("general.architecture", struct.pack("<I", 8) + _text(b"ll\xff"), "general.architecture is b'll"),
    ("general.architecture", struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 4, 0), "general.architecture is"),
    ("llama.block_count", struct.pack("<I", 8) + _text("2"), "llama.block_count is '2'"),
    ("llama.block_count", struct.pack("<IIQ", 9, 4, 0), "llama.block_count differs by layer"),
    ("llama.attention.head_count", struct.pack("<If", 6, 4.0), "head_count is 4.0"),
    ("llama.embedding_length", struct.pack("<IB", 7, 1), "embedding_length is True"),
    ("x.future", struct.pack("<I", 13), "'x.future' has value type 13"),
    ("x.future", struct.pack("<IIQ", 9, 13, 1), "'x.future' is an array of 1 values of type 13"),
]


@pytest.mark.parametrize(("key", "odd", "says"), REQUIRED)
def test_224_required_metadata_may_not(key, odd, says, tiny, tmp_path):
    path = tiny.gguf(tmp_path / "a.gguf", omit=(key.removeprefix("llama."),))
    path.write_bytes(path.read_bytes().replace(_text(key), _text(key[:-1] + "X"), 1))
    with pytest.raises(LoadError, match=says):
        ModelConfig.from_hf(open_checkpoint(with_pair(path, key, odd)).config)


def _named(folder, files):
    folder.mkdir()
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        if isinstance(content, dict) and name.endswith(".safetensors"):
            save_file(content, folder / name)
        else:
            text = json.dumps(content) if isinstance(content, dict) else content
            (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


ONE = {"a": torch.ones(1)}
NO_MODELS = {
    "a LoRA": (
        {"adapter_config.json": {"base_model_name_or_path": "o/base"}, "adapter_model.safetensors": ONE},
        "LoRA adapter for o/base.*merge it",
    ),
    "a LoRA without its config": ({"adapter_model.safetensors": ONE}, "LoRA adapter"),
    "a LoRA by its tensors": (
        {"model.safetensors": {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": torch.ones(2, 2)}},
        "LoRA adapter",
    ),
    "Mistral's own": ({"consolidated.safetensors": ONE, "params.json": "{}"}, "own format.*transformers files"),
    "Mistral's own, renamed": (
        {"model.safetensors": {"tok_embeddings.weight": torch.ones(2, 2)}, "config.json": "{}"},
        "own format.*transformers files",
    ),
    "Meta's own": ({"consolidated.00.pth": "x", "params.json": "{}"}, r"consolidated\.00\.pth: Meta's own format"),
    "pickles": ({"pytorch_model.bin": "x", "config.json": "{}"}, "pickled weights.*save_pretrained"),
    "pickled shards": ({"pytorch_model-00001-of-00002.bin": "x"}, "pickled weights"),
    "old MLX": ({"weights.npz": "x", "config.json": "{}"}, "MLX or JAX model"),
    "TensorFlow": ({"tf_model.h5": "x", "config.json": "{}"}, "TensorFlow weights"),
    "Flax": ({"flax_model.msgpack": "x"}, "Flax weights"),
    "ONNX": ({"model.onnx": "x"}, "an ONNX model"),
    "pieces of a GGUF": ({"m.gguf.part1of2": "x", "m.gguf.part2of2": "y"}, "pieces of a .gguf file"),
    "pieces made by split": ({"m.gguf-split-a": "x", "m.gguf-split-b": "y"}, "pieces of a .gguf file"),
    "an importance matrix": ({"imatrix.dat": "x"}, "importance matrix"),
    "a pipeline": ({"model_index.json": "{}"}, "diffusers"),
    "a copy of the hub's cache": ({"snapshots/abc/config.json": "{}"}, r"a model in snapshots/abc: pass that folder"),
    "a collection": ({"one/config.json": "{}", "two/config.json": "{}"}, "a model in one: pass that folder"),
    "a pointer": ({"model.safetensors": b"version https://git-lfs.github.com/spec/v1\noid x"}, "Git LFS pointer"),
    "a page": ({"model.safetensors": b"<!DOCTYPE html><html>"}, "a web page"),
    "some of the shards": ({"model-00002-of-00003.safetensors": ONE}, r"1 of 3 shards of model .*part 1, 3 is missing"),
    "strangers": ({"a.safetensors": ONE, "b.safetensors": ONE}, r"2 \.safetensors files \(a\.safetensors"),
}


@pytest.mark.parametrize("name", NO_MODELS)
def test_229_what_is_no_model_is_named_for_what_it_is(name, tmp_path):
    files, says = NO_MODELS[name]
    with pytest.raises(LoadError, match=says) as caught:
        open_checkpoint(_named(tmp_path / "m", files))
    assert "\n" not in str(caught.value)
    assert "json is missing" not in str(caught.value)


def quantised(config, *endings):
    """A folder's config and tensors of a quantiser that keeps its parts under these names."""
    names = [f"model.layers.0.self_attn.q_proj.{ending}" for ending in endings]
    return {"config.json": config, "model.safetensors": {name: torch.ones(2, 2) for name in names}}


QUANTISED = {
    "mlx": quantised({"quantization": {"group_size": 64, "bits": 4}}, "weight", "scales", "biases"),
    "mlx, newer": quantised({"quantization_config": {"bits": 4}}, "weight", "scales", "biases"),
    "gptq": quantised({"quantization_config": {"quant_method": "gptq"}}, "qweight", "qzeros", "scales", "g_idx"),
    "awq": quantised({"quantization_config": {"quant_method": "awq"}}, "qweight", "qzeros", "scales"),
    "gptq or awq": quantised({}, "qweight", "qzeros", "scales"),
    "bitsandbytes": quantised({}, "weight", "weight.absmax"),
    "fp8": quantised({"quantization_config": {"quant_method": "fp8"}}, "weight", "weight_scale_inv"),
}


@pytest.mark.parametrize("name", QUANTISED)
def test_229_quantised_folders_say_by_whom(name, tiny, tmp_path):
    files = {**QUANTISED[name], "config.json": {**tiny.config, **QUANTISED[name]["config.json"]}}
    checkpoint = open_checkpoint(_named(tmp_path / "m", files))  # transformers may read it
    with pytest.raises(LoadError, match=f"quantised by {name.partition(',')[0]}: use the unquantised folder or a GGUF"):
        ModelConfig.from_hf(checkpoint.config)


@pytest.mark.parametrize("stem", ["weights", "model.fp16", "tiny-llama"])
def test_229_one_file_of_another_name_is_the_model(stem, tiny, tmp_path):
    path = tiny.folder(tmp_path / "m")
    (path / "model.safetensors").rename(path / f"{stem}.safetensors")
    assert open_checkpoint(path).tensors.names() == set(tiny.weights())


@pytest.mark.parametrize("stem", ["model", "pytorch_model"])
def test_229_whole_shards_need_no_index(stem, tiny, tmp_path):
    path = tiny.folder(tmp_path / "m", shards=3)
    (path / "model.safetensors.index.json").unlink()
    for file in path.glob("model-*.safetensors"):
        file.rename(file.with_name(file.name.replace("model", stem)))
    got = open_checkpoint(path).tensors
    assert all(torch.equal(got.load(name), tensor) for name, tensor in tiny.weights().items())


def typed(kind):
    def edit(writer):
        writer.add_string("general.type", kind)

    return edit


GGUFS = {
    "a LoRA": (dict(edit=typed("adapter")), "LoRA adapter"),
    "a LoRA by its tensors": (
        dict(tensors={"blk.0.attn_v.weight.lora_a": torch.ones(2, 2)}),
        "LoRA",
    ),
    "a projector": (dict(edit=typed("mmproj"), arch="clip"), "sees images"),
    "an older projector": (dict(arch="clip"), "sees images"),
    "an embedder": (dict(arch="bert"), "embedding model"),
    "a newer embedder": (dict(arch="nomic-bert-moe"), "embedding model"),
    "an importance matrix": (dict(edit=typed("imatrix"), arch="imatrix"), "importance matrix"),
    "a vocabulary": (dict(tensors={}), "vocabulary without weights"),
    "a control vector": (dict(arch="controlvector"), "control vector"),
    "a painter": (dict(arch="flux"), "makes images"),
}


@pytest.mark.parametrize("name", GGUFS)
def test_229_gguf_files_that_are_no_language_model(name, tiny, tmp_path):
    options, says = GGUFS[name]
    with pytest.raises(LoadError, match=says):
        open_checkpoint(tiny.gguf(tmp_path / "m.gguf", **options))


def test_229_a_model_beside_its_projector_is_the_model(tiny, tmp_path):
    tiny.gguf(tmp_path / "mmproj-F16.gguf", arch="clip")
    tiny.gguf(tmp_path / "m.imatrix.gguf", arch="clip")
    tiny.gguf(tmp_path / "m.gguf")
    assert open_checkpoint(tmp_path).path == tmp_path / "m.gguf"
    for name, content in (("p.gguf", b"version https://git-lfs.github.com"), ("h.gguf", b"<html><head>" + bytes(40))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(LoadError, match=r"Git LFS|web page"):
            open_checkpoint(tmp_path / name)
