"""Each format's codes, scales and values against independent definitions and by hand."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from forerun.quant import ggml, int8, nf4, q4
from forerun.quant.error import relative, worst_row


def normal(rows: int, cols: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(seed))


def test_int8_reaches_127_in_every_row_and_errs_by_half_a_step():
    x = normal(17, 45) * torch.logspace(-20, 20, 17)[:, None]
    codes, scales = int8.quantise(x)
    assert codes.dtype == torch.int8
    assert (codes.abs().amax(-1) == 127).all()
    off = (int8.dequantise(codes, scales) - x).abs()
    assert (off <= scales[:, None] * 0.50001).all()


@pytest.mark.parametrize("row", [torch.zeros(8), torch.full((8,), 1e-45), torch.full((8,), -3e38)])
def test_int8_edges(row):
    codes, scales = int8.quantise(row[None])
    assert codes.min() >= -127
    assert bool(int8.dequantise(codes, scales).isfinite().all())
    assert scales.shape == (1,)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1"])
def test_ggml_blocks_dequantise_to_the_packages_values_bit_for_bit(kind):
    raw = gguf.quants.quantize(normal(9, 96).numpy(), gguf.GGMLQuantizationType[kind])
    blocks = ggml.split(kind, raw)
    assert blocks.codes.shape == (9, 96)
    assert blocks.d.shape == (9, 3)
    assert (blocks.m is None) == (kind != "Q4_1")
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    np.testing.assert_array_equal(ggml.dequantise(blocks).numpy().view(np.uint32), expected.view(np.uint32))


def test_ggml_by_hand():
    d, m = np.float16([0.5]).tobytes(), np.float16([-1]).tobytes()
    nibbles = bytes(i | (15 - i) << 4 for i in range(16))
    blocks = ggml.split("Q4_1", np.frombuffer(d + m + nibbles, np.uint8)[None])
    assert blocks.codes[0].tolist() == [*range(16), *range(15, -1, -1)]
    assert ggml.dequantise(blocks)[0, :3].tolist() == [-1.0, -0.5, 0.0]
    low = ggml.split("Q4_0", np.frombuffer(d + nibbles, np.uint8)[None])
    assert ggml.dequantise(low)[0, :3].tolist() == [-4.0, -3.5, -3.0]
    eight = ggml.split("Q8_0", np.frombuffer(d + bytes([128, 127, *range(30)]), np.uint8)[None])
    assert ggml.dequantise(eight)[0, :4].tolist() == [-64.0, 63.5, 0.0, 0.5]
    assert eight.finite()
    assert not ggml.split("Q8_0", np.frombuffer(np.float16([np.inf]).tobytes() + bytes(32), np.uint8)[None]).finite()


def test_q4_beats_the_plain_quantiser_everywhere():
    x = normal(64, 256)
    ours = q4.dequantise(*q4.quantise(x))
    kind = gguf.GGMLQuantizationType.Q4_1
    plain = torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(x.numpy(), kind), kind))
    assert relative(ours, x) < 0.95 * relative(plain, x)
    off = lambda y: (y - x).square().reshape(64, 8, 32).sum(-1)
    assert (off(ours) <= off(plain) * 1.001 + 1e-9).float().mean() > 0.99


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5])
def test_q4_constant_blocks_are_exact(value):
    x = torch.full((2, 64), value)
    codes, d, m = q4.quantise(x)
    assert torch.equal(q4.dequantise(codes, d, m), x)
    assert codes.min() >= 0
    assert codes.max() <= 15


def test_q4_tells_of_values_beyond_half_precision():
    _, d, m = q4.quantise(torch.tensor([[1e6, -1e6, *([0.0] * 30)]]))
    assert not bool(d.isfinite().all() and m.isfinite().all())


def test_nf4_levels_are_normal_quantiles_and_sorted():
    """The published construction: quantiles of a normal distribution, 8 up and 7 down, over the largest."""
    levels = torch.tensor(nf4.LEVELS, dtype=torch.float64)
    edge = 0.9677083
    inverse = torch.distributions.Normal(0.0, 1.0).icdf
    up = inverse(torch.linspace(edge, 0.5, 9, dtype=torch.float64)[:-1])
    down = -inverse(torch.linspace(edge, 0.5, 8, dtype=torch.float64)[:-1])
    expected = torch.cat((up, torch.zeros(1, dtype=torch.float64), down)).sort().values
    torch.testing.assert_close(levels, expected / expected.max(), rtol=0, atol=2e-6)


def test_nf4_takes_the_nearest_level():
    x = normal(8, 128)
    codes, absmax = nf4.quantise(x)
    assert absmax.shape == (8, 2)
    scaled = (x.reshape(8, 2, 64) / absmax[..., None]).reshape(8, 128)
    nearest = (scaled[..., None] - torch.tensor(nf4.LEVELS)).abs().argmin(-1)
    assert torch.equal(codes.long(), nearest)
    assert relative(nf4.dequantise(codes, absmax), x) < 0.1
    codes, absmax = nf4.quantise(torch.zeros(1, 64))
    assert torch.equal(nf4.dequantise(codes, absmax), torch.zeros(1, 64))
    assert set(codes.flatten().tolist()) == {7}


def test_measures():
    x = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    assert relative(x, x) == 0
    assert relative(1.1 * x, x) == pytest.approx(0.1)
    assert worst_row(torch.tensor([[3.0, 4.0], [0.0, 2.0]]), x) == 1.0
    assert relative(torch.ones(2), torch.zeros(2)) == float("inf")
