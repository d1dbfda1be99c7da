import struct

import gguf
import numpy as np
import pytest
import torch

from forerun.core.errors import LoadError
from forerun.weights.dequant import SUPPORTED
from forerun.weights.gguf import open_gguf

Kind = gguf.GGMLQuantizationType


def test_reads_what_an_independent_writer_wrote(tiny, tmp_path):
    def edit(writer):
        writer.add_string("x.text", "ünï")
        writer.add_array("x.numbers", [1, 2, 3])
        writer.add_array("x.words", ["a", "b c"])
        writer.add_bool("x.flag", True)
        writer.add_float64("x.half", 0.5)
        writer.add_int8("x.low", -3)

    file = open_gguf(tiny.gguf(tmp_path / "a.gguf", edit=edit))
    assert file.version == 3
    got = {k: v for k, v in file.metadata.items() if k.startswith("x.")}
    assert got == {"x.text": "ünï", "x.numbers": [1, 2, 3], "x.words": ["a", "b c"], "x.flag": True, "x.half": 0.5,
                   "x.low": -3}  # fmt: skip
    assert file.tensors["blk.0.ffn_down.weight"].shape == (64, 96)
    assert torch.equal(file.load("token_embd.weight"), tiny.weights()["model.embed_tokens.weight"])


@pytest.mark.parametrize("name", SUPPORTED)
def test_every_supported_type_equals_the_package(name, tmp_path):
    kind = Kind[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(3)
    shape = (70, 512)
    try:
        raw = gguf.quants.quantize(rng.standard_normal(shape).astype(np.float32), kind)
    except NotImplementedError:  # k-quants can only be read there: random blocks with tame scales
        raw = rng.integers(0, 60, (shape[0], shape[1] // block * size), dtype=np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "q.gguf", "llama")
    writer.add_tensor("t", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    got = open_gguf(tmp_path / "q.gguf").load("t")
    expected = gguf.quants.dequantize(raw.view(np.uint8), kind)
    stored = {"F16": torch.float16, "BF16": torch.bfloat16}.get(name, torch.float32)
    assert got.dtype == stored
    np.testing.assert_array_equal(got.float().numpy().view(np.uint32), expected.reshape(shape).view(np.uint32))


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"", "is empty"),
        (b"GGU", "too short"),
        (b"GGUF", "too short"),
        (b"GGML" + bytes(40), "older GGML format"),
        (b"FUGG" + bytes(40), "byte-swapped"),
        (b"once upon a time, in a land far away", "b'once'"),
        (struct.pack("<Q", 30) + b'{"a":1}' + bytes(40), "safetensors"),
    ],
)
def test_wrong_beginnings(head, says, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(head)
    with pytest.raises(LoadError, match=says):
        open_gguf(path)


@pytest.mark.parametrize(
    ("version", "says"),
    [(b"\0\0\0\3", "big-endian"), (struct.pack("<I", 0), "version 0"), (struct.pack("<I", 1), "version 1"),
     (struct.pack("<I", 99), "version 99")],
)  # fmt: skip
def test_versions(version, says, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + version + bytes(64))
    with pytest.raises(LoadError, match=says):
        open_gguf(path)


def test_cut_files_name_what_is_missing_and_both_sizes(tiny, tmp_path):
    whole = tiny.gguf(tmp_path / "a.gguf").read_bytes()
    data = open_gguf(tmp_path / "a.gguf").head()
    cut = tmp_path / "cut.gguf"
    for keep, says in [(len(whole) // 2, "tensor 'blk"), (len(data) // 2, "needs"), (30, "metadata needs")]:
        cut.write_bytes(whole[:keep])
        with pytest.raises(LoadError, match=says) as caught:
            open_gguf(cut)
        assert str(keep) in str(caught.value)
    last = open_gguf(tmp_path / "a.gguf")
    end = max(t.start + t.size for t in last.tensors.values())
    cut.write_bytes(whole[: end - 1])
    with pytest.raises(LoadError, match=f"ends at byte {end}, the file has {end - 1}"):
        open_gguf(cut)


def _raw(pairs=b"", pair_count=0, tensors=b"", tensor_count=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensor_count, pair_count) + pairs + tensors


def _text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def _tensor(name="t", shape=(32,), kind=0, offset=0):
    return _text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}QIQ", *shape, kind, offset)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (_raw(pair_count=2**63), "metadata needs"),
        (_raw(tensor_count=2**61), "metadata needs"),
        (_raw(struct.pack("<Q", 2**64 - 1) + b"x" * 32, 1), "metadata needs"),
        (_raw(_text("k") + struct.pack("<IIQ", 9, 8, 2**40) + bytes(64), 1), "array of"),
        (_raw(_text("k") + struct.pack("<IIQ", 9, 4, 2**20) + bytes(64), 1), "metadata needs"),
        (_raw(_text("k") + struct.pack("<IIQ", 9, 13, 1) + bytes(64), 1), "array of"),
        (_raw(_text("k") + struct.pack("<I", 9) + 5 * struct.pack("<IQ", 9, 1) + bytes(64), 1), "array of"),
        (_raw(_text("k") + struct.pack("<I", 77) + bytes(64), 1), "value type 77"),
        (_raw(2 * (_text("k") + struct.pack("<IB", 7, 1)), 2), "'k' is listed twice"),
        (_raw(tensors=_tensor(kind=39) + bytes(64), tensor_count=1), r"'t' has type MXFP4 \(39\): known, not"),
        (_raw(tensors=_tensor(kind=200) + bytes(64), tensor_count=1), "'t' has unknown type 200"),
        (_raw(tensors=_tensor(kind=20) + bytes(64), tensor_count=1), "IQ4_NL.*known, not supported"),
        (_raw(tensors=_tensor(shape=(33,), kind=8) + bytes(256), tensor_count=1), "multiple of 32"),
        (_raw(tensors=_tensor(shape=(2**62, 2**62)) + bytes(256), tensor_count=1), "'t' ends at byte"),
        (_raw(tensors=_tensor(offset=2**64 - 32) + bytes(256), tensor_count=1), "'t' ends at byte"),
        (_raw(tensors=_tensor(shape=(0, 4)) + bytes(256), tensor_count=1), "no axis may be 0"),
        (_raw(tensors=_text("t") + struct.pack("<I", 9) + bytes(256), tensor_count=1), "9 dimensions"),
        (_raw(tensors=2 * _tensor() + bytes(256), tensor_count=2), "listed twice"),
        (_raw(tensors=_tensor() + _tensor("u", offset=64) + bytes(512), tensor_count=2), "'u' overlaps"),
        (_raw(_text("general.alignment") + struct.pack("<II", 4, 3) + bytes(64), 1), "general.alignment is 3"),
        (_raw(struct.pack("<Q", 2) + b"\xff\xfe" + bytes(64), 1), "not UTF-8"),
    ],
)  # fmt: skip
def test_headers_that_lie(raw, says, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    with pytest.raises(LoadError, match=says):
        open_gguf(path)


def test_a_missing_file_and_a_folder(tmp_path):
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(LoadError, match="cannot read"):
            open_gguf(path)
