"""Few rows times a big weight: the one operation whose time a step consists of.

Speculation lives from T(8) being close to T(1): eight rows read the same weights. On a CPU, `F.linear` does not give
that: over the layers of SmolLM2-135M in float32 on two Zen 4 cores it took 37 ms for 1 row, 66 for 2, 46 for 8 and 56
for 16. oneDNN's prepacked product took 23, 25, 25 and 30 (bfloat16: 20, 19, 24, 29 against 12, 12, 13, 16), and a row
had the same bits for 1 to 16 rows. `scripts/bench_rows` measures it; `results/rows.json` is that run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

FEW, PADDED = 3, 4  # oneDNN's kernels for 1 and 2 rows wait for their own sums: 4 rows took less
PACKED_FOR = 8  # rows that oneDNN lays the weight out for; layouts for 8 to 512 rows time alike, one for 1 row does not


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix [out, in] with its bias [out], laid out for `linear`."""

    matrix: Tensor
    bias: Tensor | None
    packed: bool


def linear(x: Tensor, weight: Weight) -> Tensor:
    """`x` [T, in] times the weight, plus its bias: [T, out]."""
    if weight.packed:
        rows = x.shape[0]
        if rows < FEW:
            return _product(F.pad(x, (0, 0, 0, PADDED - rows)), weight.matrix, weight.bias, "none", [], "")[:rows]
        return _product(x, weight.matrix, weight.bias, "none", [], "")
    return F.linear(x, weight.matrix, weight.bias)


def laid_out(matrix: Tensor, bias: Tensor | None = None) -> Weight:
    """The weight in the fastest layout for its device and dtype; packing copies it."""
    if _packs(matrix):
        return Weight(torch.ops.mkldnn._reorder_linear_weight(matrix, PACKED_FOR), bias, True)
    return Weight(matrix, bias, False)


def _packs(matrix: Tensor) -> bool:
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch does not annotate it
    if matrix.device.type != "cpu" or not available:
        return False
    ops = torch.ops.mkldnn
    if matrix.dtype == torch.bfloat16:
        return bool(ops._is_mkldnn_bf16_supported())
    if matrix.dtype == torch.float16:
        return bool(ops._is_mkldnn_fp16_supported())
    return matrix.dtype == torch.float32


def _product(*args: object) -> Tensor:
    return _PRODUCT(*args)


_PRODUCT: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise.default
