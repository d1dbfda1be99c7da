"""int8: one scale for each output channel, codes symmetric around 0."""

import torch
from torch import Tensor

MOST = 127


def quantise(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Codes int8 [N, K] in -127..127 and scales float32 [N] of a finite float matrix [N, K].

    The largest value of a row becomes 127 or -127; a row of zeros has scale 0.
    """
    values = matrix.float()
    scales = values.abs().amax(-1) / MOST
    # A row of the smallest subnormals has a scale that rounds to 0, or far from absmax / 127: hence the clamp.
    steps = torch.where(scales > 0, scales, torch.ones_like(scales))
    codes = (values / steps[:, None]).round_().clamp_(-MOST, MOST)
    return codes.to(torch.int8), scales


def dequantise(codes: Tensor, scales: Tensor) -> Tensor:
    """The values float32 [N, K]."""
    return codes.float() * scales[:, None]
