"""Muon (Jordan 2024): steps along the nearest orthogonal matrix, in a dtype that is chosen.

torch.optim.Muon computes in bfloat16, which takes ten times as long on a processor without instructions for it; in
bfloat16 this one is equal to it, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_FACTORS = (3.4445, -4.775, 2.0315)
"""Of the quintic whose iterates bring all singular values near one."""
_ITERATIONS = 5
_LEAST = 1e-7


class Muon(torch.optim.Optimizer):
    """For matrices; `dtype` is what they are made orthogonal in."""

    def __init__(
        self, params: Any, lr: float, weight_decay: float, dtype: torch.dtype = torch.bfloat16, momentum: float = 0.95
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        self._dtype = dtype

    # torch's own has two signatures, by whether a closure is given; here none is ever called.
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step; `closure` is not used."""
        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is None:
                    continue
                state = self.state[value]
                kept = state.setdefault("momentum_buffer", torch.zeros_like(value))
                kept.lerp_(value.grad, 1 - group["momentum"])
                way = orthogonal(value.grad.lerp(kept, group["momentum"]), self._dtype)
                value.mul_(1 - group["lr"] * group["weight_decay"])
                value.add_(way, alpha=-group["lr"] * math.sqrt(max(1, value.shape[0] / value.shape[1])))


def orthogonal(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """The matrix [N, K] with singular values near one (0.5 to 1.5), by Newton-Schulz iterations in `dtype`."""
    a, b, c = _FACTORS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.to(dtype, copy=True)
    x = x.T if tall else x
    x.div_(x.norm().clamp(min=_LEAST))
    for _ in range(_ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
