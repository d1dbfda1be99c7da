"""From edited logits to a draw: the two passes over a whole vocabulary, behind a door.

The functions here are the meaning, in plain tensor operations; a runtime may bring its own `Vocabulary` that does the
same faster. Temperature comes first, then top-k, top-p and min-p, as in transformers; among equally likely tokens the
one with the smaller id comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from forerun.core.errors import BrokenInvariant
from forerun.core.noise import race
from forerun.core.params import SamplingParams

FIRST_LOOK = 64  # candidates that a nucleus is first sought among; widened until it fits
WIDEST_LOOK = 4096  # where this many do not suffice, sorting everything at once costs less than a wider look


@dataclass(frozen=True, slots=True)
class Support:
    """A processed distribution: `weights` [K] (they sum to about one) over token `ids` [K] ascending, or over all."""

    ids: Tensor | None
    weights: Tensor

    def token(self, index: int) -> int:
        return index if self.ids is None else int(self.ids[index])


class Vocabulary(Protocol):
    """Both passes. Two of them agree up to rounding."""

    def shape(self, row: Tensor, params: SamplingParams) -> Support:
        """The distribution that `params` makes of edited logits [V], temperature > 0.

        BrokenInvariant if they hold NaN or infinity, or nothing that is finite.
        """
        ...

    def likeliest(self, row: Tensor, count: int) -> tuple[list[int], list[float]]:
        """The `count` likeliest tokens of logits [V], likeliest first, and their log-probabilities at temperature 1.

        Fewer where fewer have a finite logit; errors as for `shape`.
        """
        ...

    def race(self, weights: Tensor, key: int, ids: Tensor | None = None) -> int:
        """An index drawn in proportion to `weights` [K] by the 64 bits of `key`, as `core.noise.race` says."""
        ...


class Plain:
    """The functions of this package."""

    def shape(self, row: Tensor, params: SamplingParams) -> Support:
        return shape(row, params)

    def likeliest(self, row: Tensor, count: int) -> tuple[list[int], list[float]]:
        return likeliest(row, count)

    def race(self, weights: Tensor, key: int, ids: Tensor | None = None) -> int:
        return race(weights, key, ids)


PLAIN = Plain()


def shape(row: Tensor, params: SamplingParams) -> Support:
    """See `Vocabulary.shape`."""
    best = _best(row)
    scaled = (row - best) / max(params.temperature, torch.finfo(row.dtype).tiny)  # less is 0 in this dtype
    if params.top_k and params.top_k < row.shape[0]:
        values, ids = _likeliest(scaled, params.top_k)
        probs = torch.softmax(values, -1)
        if params.top_p < 1.0:
            probs = probs[: _reach(probs, params.top_p)]
    elif params.top_p < 1.0:
        probs, ids = _nucleus(scaled, params.top_p)
    else:
        probs = torch.softmax(scaled, -1)
        if not params.min_p:
            return Support(None, probs)
        ids = torch.arange(row.shape[0], device=row.device)
    keep = probs > 0
    if params.min_p:
        keep &= probs >= params.min_p * probs.max()
    ids, order = ids[: probs.shape[0]][keep].sort()
    probs = probs[keep][order]
    return Support(ids, probs / probs.sum())


def likeliest(row: Tensor, count: int) -> tuple[list[int], list[float]]:
    """See `Vocabulary.likeliest`."""
    _best(row)
    values, ids = _likeliest(torch.log_softmax(row, -1), min(count, row.shape[0]))
    finite = values > float("-inf")
    return ids[finite].tolist(), values[finite].tolist()


def _best(row: Tensor) -> float:
    """The largest logit of a row; BrokenInvariant where it is none."""
    best = float(row.max())
    if not -float("inf") < best < float("inf"):
        raise BrokenInvariant(f"the largest of a row's logits is {best}: the model or the runtime is broken")
    return best


def _likeliest(scaled: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values and their ids, likeliest first, the smaller id first among equals."""
    values, ids = scaled.topk(min(count + 1, scaled.shape[0]))
    if ids.shape[0] > count and bool(values[count] == values[count - 1]):  # topk would take any of these
        ids = (scaled >= values[count]).nonzero().flatten()
    else:
        ids = ids[:count].sort().values
    values, order = scaled[ids].sort(descending=True, stable=True)
    return values[:count], ids[order[:count]]


def _nucleus(scaled: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Probabilities and ids of the likeliest tokens that together reach top_p, likeliest first."""
    total = torch.logsumexp(scaled, -1)
    look = FIRST_LOOK
    while True:
        values, ids = _likeliest(scaled, min(look, scaled.shape[0]))
        probs = torch.exp(values - total)
        if look >= scaled.shape[0] or float(probs.sum()) > top_p + 1e-6:
            return probs[: _reach(probs, top_p)], ids
        look = look * 8 if look < WIDEST_LOOK else scaled.shape[0]


def _reach(probs: Tensor, top_p: float) -> int:
    """How many of the descending `probs` it takes to reach top_p; at least one."""
    before = torch.cumsum(probs, 0) - probs
    return max(1, int((before < top_p).sum()))
