"""GGUF's simple blocks taken apart: the file's own integers and scales, and nothing rounded.

A block of 32 values is, in bytes: Q8_0 d(2) codes(32); Q4_0 d(2) nibbles(16); Q4_1 d(2) m(2) nibbles(16), the low
nibbles being the first 16 values. Values are d * code, d * (code - 8), d * code + m.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

BLOCK = 32
BYTES = {"Q8_0": 34, "Q4_0": 18, "Q4_1": 20}
"""Bytes of a block, by GGML's name of its kind."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Codes int8 [N, K] (Q8_0: -128..127, else 0..15), d and (Q4_1 alone) m float16 [N, K / 32]."""

    kind: str
    codes: Tensor
    d: Tensor
    m: Tensor | None = None

    def finite(self) -> bool:
        """Whether every scale is a number."""
        return bool(self.d.isfinite().all()) and (self.m is None or bool(self.m.isfinite().all()))


def split(kind: str, raw: npt.NDArray[np.uint8]) -> Blocks:
    """The parts of raw blocks [N, bytes per row] of that kind; KeyError for a kind not in `BYTES`."""
    size = BYTES[kind]
    rows, blocks = raw.shape[0], raw.shape[1] // size
    cut = raw.reshape(rows, blocks, size)
    scales = 4 if kind == "Q4_1" else 2
    halves = np.ascontiguousarray(cut[..., :scales]).view(np.float16)  # [N, blocks, 1 or 2]
    d, m = halves[..., 0].copy(), halves[..., 1].copy() if kind == "Q4_1" else None
    held = cut[..., scales:]
    codes = held.view(np.int8) if kind == "Q8_0" else np.concatenate((held & 15, held >> 4), -1).view(np.int8)
    flat = np.ascontiguousarray(codes).reshape(rows, blocks * BLOCK)
    if not flat.flags.writeable:  # torch wants to be able to write
        flat = flat.copy()
    return Blocks(kind, torch.from_numpy(flat), torch.from_numpy(d), None if m is None else torch.from_numpy(m))


def dequantise(blocks: Blocks) -> Tensor:
    """The values float32 [N, K]."""
    codes = blocks.codes.float().reshape(*blocks.d.shape, BLOCK)
    if blocks.kind == "Q4_0":
        codes -= 8
    values = codes * blocks.d.float()[..., None]
    if blocks.m is not None:
        values += blocks.m.float()[..., None]
    return values.reshape(blocks.codes.shape)
