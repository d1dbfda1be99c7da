"""How far a head's rows are from the target's, with the gradient made on the way.

Rows of a vocabulary are where training time goes, so loss and gradient come in one pass over some hundred rows at a
time, and what is only told is computed of a few. p is the target's distribution over the words looked at, q the head's.

kl      sum p log(p / q), published heads' cross-entropy up to a constant
tv      total variation 1 - sum min(p, q): one less the chance that a sampled draft is accepted
lk      lam * kl + (1 - lam) * tv with lam = exp(-3 * sum min(p, q)): kl while they are far apart, then tv
nla     -log sum min(p, q)
(vllm-project/speculators has all of them under these names or near ones.)
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from forerun.core.errors import unknown

Loss = Literal["kl", "tv", "lk", "nla"]
LOSSES: tuple[str, ...] = get_args(Loss)
_ROWS = 512  # at a time


def check_loss(name: str) -> None:
    """SpecError for a loss that does not exist."""
    if name not in LOSSES:
        raise unknown("loss", name, LOSSES)


def row_loss(
    states: Tensor, end: Tensor, bias: Tensor, target: Tensor, which: Tensor, loss: str, looked: int
) -> tuple[Tensor, Tensor]:
    """Mean loss over rows, and the share of rows whose first choice is the target's.

    states [N, H] and end [W, H], bfloat16 or float32, `bias` [W] is added to the logits; target [T, W] probabilities
    that sum to one, of which row n is held against target[which[n]]. Both results are of the first `looked` rows only;
    the gradients are of all rows, that of `end` is computed if it wants one.
    """
    found: tuple[Tensor, Tensor] = _RowLoss.apply(  # type: ignore[no-untyped-call]  # torch does not annotate it
        states, end, bias, target, which, loss, looked
    )
    return found


class _RowLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, end: Tensor, bias: Tensor, target: Tensor, which: Tensor, loss: str, looked: int
    ) -> tuple[Tensor, Tensor]:
        """Loss, agreement, and the gradients for later."""
        count = max(1, len(states))
        by_state = torch.empty_like(states)
        slopes = states.new_empty(len(states), len(end)) if end.requires_grad else None
        for at in range(0, len(states), _ROWS):
            rows = slice(at, at + _ROWS)
            logits, p = torch.addmm(bias, states[rows], end.T), target[which[rows]]
            if loss == "kl":
                slope = torch.softmax(logits, -1).sub_(p)
            else:
                slope = _SLOPES[loss](logits.float(), p.float())[1].to(states.dtype)
            by_state[rows] = slope @ end
            if slopes is not None:
                slopes[rows] = slope
        by_end = None if slopes is None else (slopes.T @ states).float() / count
        ctx.save_for_backward(by_state / count, by_end)
        logits, p = torch.addmm(bias, states[:looked], end.T).float(), target[which[:looked]].float()
        values = _SLOPES[loss](logits, p)[0]
        same = logits.argmax(-1) == p.argmax(-1)
        share = same.float().mean() if len(same) else torch.zeros(())
        ctx.mark_non_differentiable(share)
        return values.mean() if len(values) else states.new_zeros(()), share

    @staticmethod
    def backward(ctx: Any, outer: Tensor, _share: Tensor) -> tuple[Tensor | None, ...]:
        """Those of the states and, if wanted, of the vocabulary's end."""
        by_state, by_end = ctx.saved_tensors
        return outer * by_state, None if by_end is None else outer * by_end, *[None] * 5


def _kl(logits: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    logq = torch.log_softmax(logits, -1)
    value = (torch.special.xlogy(p, p) - p * logq).sum(-1)
    return value, logq.exp() - p


def _tv(logits: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    q = torch.softmax(logits, -1)
    below = (q < p).float()  # where more q is more overlap
    overlap = torch.minimum(p, q).sum(-1)
    rising = q * below
    return 1 - overlap, -(rising - q * rising.sum(-1, keepdim=True))


def _lk(logits: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    near, near_slope = _tv(logits, p)
    far, far_slope = _kl(logits, p)
    share = torch.exp(-3 * (1 - near))
    return share * far + (1 - share) * near, share[:, None] * far_slope + (1 - share[:, None]) * near_slope


def _nla(logits: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    gap, slope = _tv(logits, p)
    overlap = (1 - gap).clamp_min(1e-6)
    return -overlap.log(), slope / overlap[:, None]


_SLOPES = {"kl": _kl, "tv": _tv, "lk": _lk, "nla": _nla}
