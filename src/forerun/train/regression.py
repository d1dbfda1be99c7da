"""EAGLE-1's lesson: imitate the target's next state, and what the target would say of it (2401.15077).

SmoothL1 between the states, a tenth of cross-entropy between the words, and uniform noise on what is read, larger for
shorter texts.
"""

from __future__ import annotations

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
from forerun.train.unrolled import Labels, Told


@dataclass(frozen=True, slots=True)
class RegressionLesson:
    """`scale` [E] is the size of the state's channels, by which errors and what is read are divided."""

    config: RecurrentConfig
    ends: Ends
    words: Tensor | None
    scale: Tensor
    columns: slice
    loss: str = "kl"
    noise: float = 0.1
    words_share: float = 0.1

    def __call__(self, w: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Told]:
        """The loss of a batch with its gradient to come, and what to tell of it."""
        c, slots = self.config, batch.states.shape[1]
        first = max(0, batch.first_answered() - 1)
        labels = Labels.of(batch, first, 1, self.ends, self.words)
        learnt, which = labels.of_step(0, slots - first)
        states = batch.states[..., self.columns].float()
        wanted = states[:, first:].roll(-1, 1)[learnt] / self.scale
        spread = self.noise * 512 / max(64, slots)
        read = states / self.scale + (torch.rand_like(states) * 2 - 1) * spread
        cos, sin = tables(c.rope, c.head_dim, slots + 1)
        attend = Unrolled(cos, sin, batch.lengths - 1, slots, torch.arange(slots).expand(len(batch.lengths), -1))
        with self.ends.computing():
            embedded = F.embedding(batch.tokens[:, 1:], self.ends.embedding)
            made = recurrent.forward(w, c, embedded, read, attend)[:, first:][learnt]
            regression = F.smooth_l1_loss(made.float() / self.scale, wanted)
            words, same = labels.loss(made, labels.end(None), which, self.loss)
        total = regression + self.words_share * words
        return total, Told(float(total.detach()), (float(same),))
