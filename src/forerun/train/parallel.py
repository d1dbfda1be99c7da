"""Lessons of P-EAGLE: every depth of a draft in one forward, of ever fewer anchors (2602.01469).

Element (anchor a, depth d) stands at position a + d. At depth 0 it is a true slot; deeper ones hold the mask's feature
and embedding. It sees the true slots up to its anchor and its own anchor's shallower elements, which is the layout of
the unrolled lesson with masks in the place of tokens. Depth d keeps max(rate^d, least) of the anchors, each depth's
among those of the depth before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from forerun.models.heads import recurrent
from forerun.train.unrolled import UnrolledLesson


@dataclass(frozen=True)
class ParallelLesson(UnrolledLesson):
    """`steps` depths."""

    rate: float = 0.8
    least: float = 0.25

    def guessing(self, w: Mapping[str, Tensor], embedded: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        """Masks; `feature` is only asked for its shape."""
        lifted = recurrent.lifted(w, self.config, w["mask_hidden"])
        return w["mask_embedding"].expand_as(embedded), lifted.expand(*feature.shape[:-1], -1)

    def kept(self, j: int, learnt: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        """A share of the anchors: those whose place in a fixed shuffle is low, so that shares are nested."""
        share = max(self.rate**j, self.least)
        if share >= 1:
            return learnt, which
        index = torch.arange(learnt.numel()).view_as(learnt)
        chosen = learnt & (index * 2654435761 % 4096 < share * 4096)
        return chosen, which[chosen[learnt]]
