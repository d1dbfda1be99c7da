"""Medusa-2: the target and its heads learn together, each held against what the target said before (2401.10774).

The target's own rows stay near what they were (its old distributions are its labels), and its states become easier to
guess from. The heads go first: the target comes up to its rate, a hundredth of theirs, while they find their feet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from forerun.models.heads import medusa
from forerun.models.heads.config import MedusaConfig
from forerun.train.batches import Batch
from forerun.train.decoder import Decoder
from forerun.train.ends import Ends
from forerun.train.unrolled import Labels, Steps, Told

TARGET_RATE = 0.01
"""Of the heads' rate."""
LATE = 0.3
"""Share of the course until the target learns at that rate."""


@dataclass(frozen=True)
class TunedLesson:
    """The target's own loss, and `share` times the heads' (0.2, as published). The first agreement that it tells is
    the target's with what it was, the others are the heads'."""

    config: MedusaConfig
    decoder: Decoder
    ends: Ends
    words: Tensor | None
    decay: float = 0.8
    loss: str = "kl"
    share: float = 0.2

    def __call__(self, w: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Told]:
        """The loss of a batch with its gradient to come, and what to tell of it."""
        c = self.config
        slots, answered = batch.states.shape[1], batch.first_answered()
        first, drafted = max(0, answered - 2), max(0, answered - 1)  # the first token of an answer is never drafted
        whole = Labels.of(batch, first, 1, self.ends, None)
        reduced = Labels.of(batch, drafted, c.count, self.ends, self.words)
        steps, own = Steps(self.decay), Steps(1.0)
        with self.ends.computing():
            states = self.decoder.states(w, F.embedding(batch.tokens, self.ends.embedding).float())
            learnt, which = whole.of_step(0, slots - first)
            own.add(*whole.loss(states[:, first + 1 :][learnt], whole.end(None), which, self.loss))
            features = states[:, drafted:-1]
            for i in range(c.count):
                learnt, which = reduced.of_step(i, slots - drafted)
                guesses = medusa.forward(w, c, i, features[learnt])
                end = reduced.end(w.get(c.ends[i % len(c.ends)]))
                steps.add(*reduced.loss(guesses, end, which, self.loss))
        (kept, of_target), (learnt_loss, of_heads) = own.mean(), steps.mean()
        total = kept + self.share * learnt_loss
        return total, Told(float(total.detach()), (*of_target.agreement, *of_heads.agreement))
