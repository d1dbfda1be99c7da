"""Q4_1 out of floats: blocks of 32 values, each value `d * code + m` with code 0..15 and d, m in half precision.

The blocks start as the format's own quantiser makes them, the whole range in 15 steps. Then d and m are fitted to the
codes by least squares and the codes rounded anew, twice, and each block keeps the best it has seen. On normally
distributed values that takes the error from 7.8 % to 7.3 %; more rounds or starts gained less than another 0.1 %.
"""

import torch
from torch import Tensor

BLOCK, MOST = 32, 15
_ROUNDS = 2


def quantise(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes int8 [N, K] in 0..15, d and m float16 [N, K / 32] of a finite float matrix [N, K], K a multiple of 32.

    Values beyond what half precision holds (65504) give infinite d or m: the caller looks.
    """
    rows = matrix.shape[0]
    values = matrix.float().reshape(-1, BLOCK)
    low, high = values.aminmax(dim=-1, keepdim=True)
    best = _rounded(values, (high - low) / MOST, low)
    least = _error(values, best)
    for _ in range(_ROUNDS):
        fresh = _rounded(values, *_fit(values, best[0]))
        error = _error(values, fresh)
        better = error < least
        least = torch.where(better, error, least)
        best = tuple(torch.where(better, new, old) for new, old in zip(fresh, best, strict=True))
    codes, d, m = best
    return codes.to(torch.int8).reshape(rows, -1), d.half().reshape(rows, -1), m.half().reshape(rows, -1)


def dequantise(codes: Tensor, d: Tensor, m: Tensor) -> Tensor:
    """The values float32 [N, K] of codes [N, K], d and m [N, K / 32]."""
    blocks = codes.float().reshape(*d.shape, BLOCK)
    return (blocks * d.float()[..., None] + m.float()[..., None]).reshape(codes.shape)


Block = tuple[Tensor, ...]  # codes [B, 32], d [B, 1], m [B, 1], all float32, d and m already as half holds them


def _rounded(values: Tensor, d: Tensor, m: Tensor) -> Block:
    d, m = d.half().float(), m.half().float()
    codes = ((values - m) / torch.where(d != 0, d, torch.ones_like(d))).round_().clamp_(0, MOST)
    return codes.nan_to_num_(0), d, m


def _fit(values: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """The d and m with the least squared error for these codes; one code all over fits d = 0."""
    middle = codes.mean(-1, keepdim=True)
    spread = codes - middle
    d = (spread * values).sum(-1, keepdim=True) / spread.square().sum(-1, keepdim=True).clamp_min_(1e-6)
    return d, values.mean(-1, keepdim=True) - d * middle


def _error(values: Tensor, block: Block) -> Tensor:
    codes, d, m = block
    return (codes * d + m - values).square_().sum(-1, keepdim=True)
