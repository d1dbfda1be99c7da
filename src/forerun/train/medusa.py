"""Lessons of Medusa heads: head i's row of a token is held against the target's distribution i + 2 tokens on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from forerun.models.heads import medusa
from forerun.models.heads.config import MedusaConfig
from forerun.train.batches import Batch
from forerun.train.ends import Ends
from forerun.train.unrolled import Labels, Steps, Told


@dataclass(frozen=True, slots=True)
class MedusaLesson:
    """The published weighted cross-entropy, `decay`^i for head i, on the target's whole distribution."""

    config: MedusaConfig
    ends: Ends
    words: Tensor | None
    decay: float = 0.8
    loss: str = "kl"

    def __call__(self, w: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Told]:
        """The loss of a batch with its gradient to come, and what to tell of it."""
        c = self.config
        first = max(0, batch.first_answered() - 1)
        labels = Labels.of(batch, first, c.count, self.ends, self.words)
        features = batch.states[:, first:, -c.features :].float()
        rows = features.shape[1]
        steps = Steps(self.decay)
        with self.ends.computing():
            for i in range(c.count):
                learnt, which = labels.of_step(i, rows)
                states = medusa.forward(w, c, i, features[learnt])
                end = labels.end(w.get(c.ends[i % len(c.ends)]))
                steps.add(*labels.loss(states, end, which, self.loss))
        return steps.mean()
