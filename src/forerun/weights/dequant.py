"""GGML tensor types: how large they are, which of them we read, and their values as float32.

The arithmetic is the `gguf` package's (an independent implementation of GGML's block formats); here
it runs in row blocks, so that unpacking needs little more memory than the result itself.
"""

import math

import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize as _dequantize

from forerun.core.errors import LoadError

SUPPORTED = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
_STORED = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_CHUNK = 1 << 21  # values unpacked at a time: 8 MiB of float32


def kind_of(tensor: str, number: int) -> GGMLQuantizationType:
    """The type behind a GGML type number; LoadError naming the tensor if we cannot read it."""
    allowed = ", ".join(SUPPORTED)
    try:
        kind = GGMLQuantizationType(number)
    except ValueError:
        raise LoadError(
            f"tensor {tensor!r} has unknown type {number} (supported: {allowed}): "
            "the file is newer than this reader, or damaged"
        ) from None
    if kind.name not in SUPPORTED:
        raise LoadError(
            f"tensor {tensor!r} has type {kind.name} ({number}): known, not supported "
            f"(supported: {allowed}); use a file quantised to one of those"
        )
    return kind


def nbytes(tensor: str, shape: tuple[int, ...], kind: GGMLQuantizationType) -> int:
    """Bytes that a tensor of this shape (row-major, the last axis contiguous) takes; LoadError if rows do not fit."""
    block, size = GGML_QUANT_SIZES[kind]
    if shape[-1] % block:
        raise LoadError(f"tensor {tensor!r} has rows of {shape[-1]} values, {kind.name} needs a multiple of {block}")
    return int(math.prod(shape) // block * size)


def stored(kind: GGMLQuantizationType) -> bool:
    """Whether a type holds its floats as they are, in no blocks."""
    return kind.name in _STORED


def rows_of(kind: str, raw: npt.NDArray[np.uint8]) -> torch.Tensor:
    """The values float32 [R, C] of whole rows of blocks [R, bytes per row] of the type of that name."""
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    return unpack(raw, (raw.shape[0], raw.shape[1] // size * block), GGMLQuantizationType[kind])


def unpack(raw: npt.NDArray[np.uint8], shape: tuple[int, ...], kind: GGMLQuantizationType) -> torch.Tensor:
    """A tensor of `shape` from its bytes [nbytes]: floats keep their type, block formats become float32."""
    if kind.name in _STORED:
        return torch.from_numpy(raw.copy()).view(_STORED[kind.name]).reshape(shape)
    out = torch.empty(shape, dtype=torch.float32)
    rows = out.view(-1, shape[-1]).numpy()  # [R, C], shares memory with `out`
    packed = raw.reshape(rows.shape[0], -1)  # [R, bytes]
    step = max(1, _CHUNK // shape[-1])
    with np.errstate(all="ignore"):  # scales of a damaged file may overflow; that is not ours to judge
        for first in range(0, rows.shape[0], step):
            rows[first : first + step] = _dequantize(packed[first : first + step], kind)
    return out
