"""Packing: every format comes back bit for bit as its reference says, and lies as csrc/formats.h draws it."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from forerun.quant import ggml, int8, nf4, q4

_ext = pytest.importorskip("forerun.native._ext", reason="the native extension was not built")

UNITS = {"f32": 1, "bf16": 2, "int8": 4, "q8_0": 32, "q4_0": 32, "q4_1": 32, "nf4": 64}
UNIT_BYTES = {"f32": 128, "bf16": 128, "int8": 128, "q8_0": 1088, "q4_0": 576, "q4_1": 640, "nf4": 1152}


def made(format, rows, cols, seed=0):
    """Random parts of a matrix of that format: (what `pack_*` takes, the values by the reference)."""
    rng = np.random.default_rng(seed)
    if format == "f32":
        matrix = rng.standard_normal((rows, cols)).astype(np.float32)
        return (matrix,), matrix
    if format == "bf16":
        bits = torch.from_numpy(rng.standard_normal((rows, cols))).bfloat16()
        return (bits.view(torch.uint16).numpy(),), bits.float().numpy()
    if format == "int8":
        codes, scales = int8.quantise(torch.from_numpy(rng.standard_normal((rows, cols))))
        return (codes.numpy(), scales.numpy()), int8.dequantise(codes, scales).numpy()
    if format == "nf4":
        codes, absmax = nf4.quantise(torch.from_numpy(rng.standard_normal((rows, cols))))
        return (codes.numpy(), absmax.numpy()), nf4.dequantise(codes, absmax).numpy()
    low, high = (-128, 128) if format == "q8_0" else (0, 16)
    codes = torch.from_numpy(rng.integers(low, high, (rows, cols)).astype(np.int8))
    d, m = (torch.from_numpy(rng.standard_normal((rows, cols // 32))).half() for _ in range(2))
    d[0, 0] = 3e-7  # subnormal
    blocks = ggml.Blocks(format.upper(), codes, d, m if format == "q4_1" else None)
    values = ggml.dequantise(blocks).numpy()
    return (codes.numpy(), d.numpy(), m.numpy() if format == "q4_1" else None), values


def packed(format, parts):
    rows, cols = parts[0].shape
    out = np.full(_ext.packed_bytes(format, rows, cols), 0xAB, np.uint8)
    if UNITS[format] == 32:
        _ext.pack_blocks(format, *parts, out)
    else:
        getattr(_ext, f"pack_{format}")(*parts, out)
    return out


def shapes(format, count=8):
    draw = random.Random(format)
    block = UNITS[format] if format in ("q8_0", "q4_0", "q4_1", "nf4") else 1
    yield 1, block
    yield 700, 12 * 64  # large enough for two threads
    for _ in range(count):
        cols = draw.randrange(1, 200)
        yield draw.randrange(1, 140), -(-cols // block) * block


def test_the_formats_are_those_of_this_test():
    assert list(_ext.FORMATS) == list(UNITS)


@pytest.mark.parametrize("format", UNITS)
def test_what_was_packed_comes_back_bit_for_bit(format):
    for seed, (rows, cols) in enumerate(shapes(format)):
        parts, values = made(format, rows, cols, seed)
        got = _ext.unpack(format, rows, cols, packed(format, parts))
        np.testing.assert_array_equal(got.view(np.uint32), values.astype(np.float32).view(np.uint32))


@pytest.mark.parametrize("format", UNITS)
def test_sizes_and_padding(format):
    for rows, cols in shapes(format):
        tail = 128 if format == "int8" else 0
        strip = -(-cols // 64) * 64 // UNITS[format] * UNIT_BYTES[format] + tail
        assert _ext.packed_bytes(format, rows, cols) == -(-rows // 32) * strip
    parts, _ = made(format, 33, 64)
    whole = _ext.unpack(format, 64, 64, packed(format, parts))
    assert not whole[33:].any()  # padding rows are zero
    if UNITS[format] < 64:
        parts, _ = made(format, 3, 32)
        assert not _ext.unpack(format, 3, 64, packed(format, parts))[:, 32:].any()


@pytest.mark.parametrize(
    ("format", "dtype", "inner"), [("f32", np.float32, 1), ("bf16", np.uint16, 2), ("int8", np.uint8, 4)]
)
def test_plain_formats_lie_as_drawn(format, dtype, inner):
    """[K / inner][2 panels][16 outputs][inner]."""
    parts, _ = made(format, 64, 128)
    strips = packed(format, parts).reshape(2, -1)
    steps = strips[:, : 128 * 32 * np.dtype(dtype).itemsize].copy().view(dtype).reshape(2, 128 // inner, 2, 16, inner)
    matrix = parts[0] if format != "int8" else (parts[0].astype(np.int16) + 128).astype(np.uint8)
    drawn = matrix.reshape(2, 2, 16, 128 // inner, inner).transpose(0, 3, 1, 2, 4)
    np.testing.assert_array_equal(steps, drawn)
    if format == "int8":
        np.testing.assert_array_equal(strips[:, -128:].copy().view(np.float32).reshape(-1), parts[1])


@pytest.mark.parametrize("format", ["q8_0", "q4_0", "q4_1"])
def test_blocks_lie_as_drawn(format):
    """{half d[32]; half m[32]; [groups of 4 k][2][16][4]}, group g + 4 in the high nibbles of group g."""
    codes, d, m = made(format, 64, 128)[0]
    units = packed(format, (codes, d, m)).reshape(2, 4, -1)
    head = 128 if format == "q4_1" else 64
    scales = units[..., :head].copy().view(np.float16).reshape(2, 4, -1, 32)
    for i, expected in enumerate((d, m)[: head // 64]):
        np.testing.assert_array_equal(scales[:, :, i], expected.reshape(2, 32, 4).transpose(0, 2, 1))
    drawn = codes.astype(np.int16).reshape(2, 2, 16, 4, 8, 4).transpose(0, 3, 4, 1, 2, 5)  # strip, block, group, …
    body = units[..., head:].reshape(2, 4, -1, 2, 16, 4)
    if format == "q8_0":
        np.testing.assert_array_equal(body, drawn + 128)
    else:
        np.testing.assert_array_equal(body, drawn[:, :, :4] | drawn[:, :, 4:] << 4)


def test_nf4_lies_as_drawn():
    """{float absmax[32]; [32 k pairs][2][16], low nibble the even k}."""
    codes, absmax = made("nf4", 64, 128)[0]
    units = packed("nf4", (codes, absmax)).reshape(2, 2, -1)
    scales = units[..., :128].copy().view(np.float32)
    np.testing.assert_array_equal(scales, absmax.reshape(2, 32, 2).transpose(0, 2, 1))
    pairs = (codes[:, ::2] | codes[:, 1::2] << 4).reshape(2, 32, 2, 32).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(units[..., 128:].reshape(2, 2, 32, 32), pairs)


def test_strips_can_be_packed_apart():
    """What lets a matrix be packed some rows at a time."""
    (matrix,), _ = made("f32", 100, 70)
    pieces = [packed("f32", (matrix[at : at + 32],)) for at in range(0, 100, 32)]
    np.testing.assert_array_equal(np.concatenate(pieces), packed("f32", (matrix,)))


def wrong():
    f32, codes, scales = np.zeros((4, 64), np.float32), np.zeros((4, 64), np.int8), np.zeros(4, np.float32)
    d, u8 = np.zeros((4, 2), np.float16), np.zeros((4, 64), np.uint8)
    size = _ext.packed_bytes
    out = lambda format: np.zeros(size(format, 4, 64), np.uint8)
    yield "size of the packed bytes", lambda: _ext.pack_f32(f32, out("f32")[1:])
    yield "size of the packed bytes", lambda: _ext.unpack("f32", 4, 65, out("f32"))
    yield "number of scales", lambda: _ext.pack_int8(codes, scales[1:], out("int8"))
    yield "code is out of range", lambda: _ext.pack_int8(codes - 127 - 1, scales, out("int8"))
    yield "code is out of range", lambda: _ext.pack_blocks("q4_0", codes + 16, d, None, out("q4_0"))
    yield "code is out of range", lambda: _ext.pack_blocks("q4_0", codes - 1, d, None, out("q4_0"))
    yield "code is out of range", lambda: _ext.pack_nf4(u8 + 16, np.zeros((4, 1), np.float32), out("nf4"))
    yield "columns of d", lambda: _ext.pack_blocks("q8_0", codes, d[:, :1].copy(), None, out("q8_0"))
    yield "rows of d", lambda: _ext.pack_blocks("q8_0", codes, d[:3].copy(), None, out("q8_0"))
    yield "m is missing", lambda: _ext.pack_blocks("q4_1", codes, d, None, out("q4_1"))
    yield "m is given", lambda: _ext.pack_blocks("q4_0", codes, d, d, out("q4_0"))
    yield "has no blocks", lambda: _ext.pack_blocks("bf16", codes, d, None, out("bf16"))
    odd = np.zeros((4, 33), np.int8)
    yield "multiple of 32", lambda: _ext.pack_blocks("q8_0", odd, d, None, np.zeros(size("q8_0", 4, 33), np.uint8))
    yield "unknown weight format 'q5'", lambda: size("q5", 1, 1)
    yield "a matrix cannot have", lambda: size("f32", 0, 1)
    yield "a matrix cannot have", lambda: size("f32", 1 << 32, 1 << 32)
    askew = np.zeros(4 * 64 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 64)
    yield "multiple of its item size", lambda: _ext.pack_f32(askew, out("f32"))


def test_what_does_not_fit_is_refused():
    for says, call in wrong():
        with pytest.raises(ValueError, match=says):
            call()
    for call in (
        lambda: _ext.pack_f32(np.zeros((4, 64)), np.zeros(1, np.uint8)),  # another dtype would be a copy
        lambda: _ext.pack_f32(np.zeros((64, 4), np.float32).T, np.zeros(1, np.uint8)),
        lambda: _ext.pack_f32(np.zeros((1, 1), np.float32), np.frombuffer(bytes(8192), np.uint8)),  # read-only
    ):
        with pytest.raises(TypeError):
            call()


def test_every_code_of_every_format_has_its_value():
    codes = np.tile(np.arange(16, dtype=np.int8), 4)[None]
    one = np.ones((1, 2), np.float16)
    for format, expected in (("q4_0", codes - 8), ("q4_1", codes + 1)):
        got = _ext.unpack(format, 1, 64, packed(format, (codes, one, one if format == "q4_1" else None)))
        np.testing.assert_array_equal(got, expected)
    got = _ext.unpack("nf4", 1, 64, packed("nf4", (codes.astype(np.uint8), np.ones((1, 1), np.float32))))
    np.testing.assert_array_equal(got[0, :16], np.float32(nf4.LEVELS))
    values = torch.randn(3, 64)
    parts = tuple(part.numpy() for part in q4.quantise(values))
    np.testing.assert_array_equal(
        _ext.unpack("q4_1", 3, 64, packed("q4_1", parts)), q4.dequantise(*q4.quantise(values))
    )


def test_every_half_becomes_its_float():
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(1 << 10, 64)
    codes = np.ones((1 << 10, 64 * 32), np.int8)
    got = _ext.unpack("q8_0", 1 << 10, 64 * 32, packed("q8_0", (codes, bits.view(np.float16), None)))[:, ::32]
    np.testing.assert_array_equal(got, bits.view(np.float16).astype(np.float32))
