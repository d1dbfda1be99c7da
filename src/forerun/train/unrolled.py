"""Lessons of the heads that read their own features: EAGLE-3's training-time test, MTP's re-used module.

At step j the head has read j of its own features and the true tokens; its row of slot i is held against the target's
distribution of token i + j + 2. Features are divided by their channels' size and the division is folded into the
weights at the end, since a few channels of a residual stream are hundreds of times larger than the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from forerun.models.heads import recurrent
from forerun.models.heads.config import RecurrentConfig
from forerun.models.rope import tables
from forerun.train.batches import Batch
from forerun.train.ends import Ends
from forerun.train.layouts import Unrolled
from forerun.train.losses import row_loss

POSSIBLE = 2e-3  # a word that the target gives so much anywhere in a batch is looked at in all of it
OTHERS = 1024  # further words of a batch that are looked at
TOLD_ROWS = 128  # of each step that loss and agreement are told of


@dataclass(frozen=True, slots=True)
class Told:
    """Of a step: loss per row, and for each unrolled step how often the first choices agree."""

    loss: float
    agreement: tuple[float, ...]


class Steps:
    """Losses of steps or heads, each `decay` as heavy as the one before, on their way to one mean."""

    def __init__(self, decay: float) -> None:
        self._decay, self._total, self._weight = decay, torch.zeros(()), 0.0
        self._agreement: list[float] = []

    def add(self, loss: Tensor, same: Tensor) -> None:
        """The next step's mean loss, and the share of its rows that agree."""
        share = self._decay ** len(self._agreement)
        self._total = self._total + share * loss
        self._weight += share
        self._agreement.append(float(same))

    def mean(self) -> tuple[Tensor, Told]:
        """The mean, and what to tell of it."""
        total = self._total / self._weight
        return total, Told(float(total.detach()), tuple(self._agreement))


@dataclass(frozen=True)
class UnrolledLesson:
    """`scale` [F] is the size of each channel of the features; `features` picks them out of a corpus's states."""

    config: RecurrentConfig
    ends: Ends
    words: Tensor | None
    scale: Tensor
    columns: slice
    steps: int = 5
    decay: float = 0.8
    loss: str = "kl"

    def __call__(self, w: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Told]:
        """The loss of a batch with its gradient to come, and what to tell of it."""
        c, slots = self.config, batch.states.shape[1]
        first = max(0, batch.first_answered() - 1)
        labels = Labels.of(batch, first, self.steps, self.ends, self.words)
        rows = slots - first
        places = torch.arange(first, slots).expand(len(batch.lengths), -1)  # [B, M]
        cos, sin = tables(c.rope, c.head_dim, slots + self.steps)
        attend = Unrolled(cos, sin, batch.lengths - 1, slots, places)
        end = labels.end(w.get("lm_head.weight"))
        steps = Steps(self.decay)
        with self.ends.computing():
            feature = recurrent.lifted(w, c, batch.states[..., self.columns] / self.scale)
            for j in range(self.steps):
                attend.step(j)
                tokens = batch.tokens[:, 1:] if j == 0 else shifted(batch.tokens, first + 1 + j, rows)
                embedded = F.embedding(tokens, self.ends.embedding)
                if j:
                    embedded, feature = self.guessing(w, embedded, feature)
                feature = recurrent.forward(w, c, embedded, feature, attend)
                if j == 0:
                    feature = feature[:, first:]
                learnt, which = labels.of_step(j, rows)
                learnt, which = self.kept(j, learnt, which)
                states = recurrent.ending(w, c, feature[learnt])
                steps.add(*labels.loss(states, end, which, self.loss))
        return steps.mean()

    def guessing(self, w: Mapping[str, Tensor], embedded: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        """What the head reads from the second step on: the tokens, and the feature that it made itself."""
        return embedded, feature

    def kept(self, j: int, learnt: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        """Which of the rows that could be learnt at step j are: all."""
        return learnt, which


@dataclass(frozen=True, slots=True)
class Labels:
    """The target's rows that a batch is held against.

    Not all draft words are looked at in a batch: `looked` [W] are those that the target thinks possible anywhere in it,
    and some of the others, which speak for all others by `bias` [W], the logarithm of how many each stands for.
    `target` [N, W] are probabilities; `number` [B, M + steps - 1] says which of them is of slot
    first + 1 + m, -1 where nothing is to be learnt; `rows` [W, E] is the target's own end.
    """

    target: Tensor
    number: Tensor
    looked: Tensor
    bias: Tensor
    rows: Tensor

    @classmethod
    def of(cls, batch: Batch, first: int, steps: int, ends: Ends, words: Tensor | None, others: int = OTHERS) -> Labels:
        """Those of a batch whose first row is slot `first`: where the next token is the target's own, and a draft
        word."""
        size, columns = ends.config.hidden_size, batch.states.shape[1] - first + steps - 1
        answered = shifted(batch.answered, first + 2, columns)
        if words is not None:
            known = torch.zeros(ends.config.vocab_size, dtype=torch.bool)
            known[words] = True
            answered = answered & known[shifted(batch.tokens, first + 2, columns)]
        final = shifted(batch.states[..., -size:], first + 1, columns)[answered].to(ends.end.dtype)
        number = torch.where(answered.flatten(), answered.flatten().cumsum(0) - 1, -1).view_as(answered)
        end = ends.rows(words)
        if not len(final):
            return cls(end.new_zeros(0, 1), number, torch.zeros(1, dtype=torch.long), end.new_zeros(1), end[:1])
        target = torch.cat([torch.softmax(part @ end.T, -1) for part in torch.split(final, 512)])
        possible = target.amax(0) > POSSIBLE
        rest = (~possible).nonzero().flatten()
        some = rest[torch.randperm(len(rest))[:others]]
        looked = torch.cat([possible.nonzero().flatten(), some])
        bias = torch.zeros(len(looked))
        if len(some):
            bias[-len(some) :] = math.log(len(rest) / len(some))
        return cls(_normed(target[:, looked]), number, looked, bias.to(end.dtype), end[looked])

    def of_step(self, j: int, rows: int) -> tuple[Tensor, Tensor]:
        """Which rows [B, M] of step j are learnt, and the target row of each of those."""
        number = self.number[:, j : j + rows]
        learnt = number >= 0
        return learnt, number[learnt]

    def end(self, own: Tensor | None) -> Tensor:
        """The vocabulary's end [W, E] over the words looked at: the head's own, if it has one."""
        return self.rows if own is None else own[self.looked].to(self.rows.dtype)

    def loss(self, states: Tensor, end: Tensor, which: Tensor, loss: str) -> tuple[Tensor, Tensor]:
        """Mean loss of these rows, and the share whose first choice is the target's, both of some of them."""
        return row_loss(states.to(end.dtype), end, self.bias, self.target, which, loss, TOLD_ROWS)


def _normed(rows: Tensor) -> Tensor:
    return (rows.float() / rows.sum(-1, keepdim=True, dtype=torch.float32)).to(rows.dtype)


def shifted(values: Tensor, start: int, count: int) -> Tensor:
    """values[:, start : start + count], zeros beyond the end."""
    found = values[:, start : start + count]
    missing = count - found.shape[1]
    return torch.cat([found, found.new_zeros(len(found), missing, *found.shape[2:])], 1) if missing else found
