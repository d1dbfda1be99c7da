"""NF4 as bitsandbytes defines it: blocks of 64 values over their largest magnitude, 16 levels at normal quantiles.

Where K is a multiple of 64, codes and scales are those of bitsandbytes (without its double quantisation of scales).
"""

import torch
from torch import Tensor

BLOCK = 64
LEVELS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""QLoRA, appendix E; csrc/pack.h holds the same."""


def quantise(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Codes uint8 [N, K] in 0..15 and absmax float32 [N, K / 64] of a finite float matrix [N, K], K a multiple of 64.

    Each value takes the nearest level, the lower one halfway between two.
    """
    rows = matrix.shape[0]
    values = matrix.float().reshape(-1, BLOCK)
    absmax = values.abs().amax(-1, keepdim=True)
    scaled = values / torch.where(absmax > 0, absmax, torch.ones_like(absmax))
    levels = torch.tensor(LEVELS)
    codes = torch.zeros(scaled.shape, dtype=torch.uint8)
    for border in (levels[1:] + levels[:-1]) / 2:  # several times faster than a search in 15 borders
        codes += scaled > border
    return codes.reshape(rows, -1), absmax.reshape(rows, -1)


def dequantise(codes: Tensor, absmax: Tensor) -> Tensor:
    """The values float32 [N, K] of codes [N, K] and absmax [N, K / 64]."""
    blocks = torch.tensor(LEVELS)[codes.long()].reshape(*absmax.shape, BLOCK)
    return (blocks * absmax[..., None]).reshape(codes.shape)
