"""P-EAGLE: all tokens of a draft in one forward of an EAGLE-3 network (2602.01469).

Below the root's slot stand masked ones, a learnt feature and a learnt embedding each; slot d guesses the token d + 1
after the root without knowing those between. Its rows are marginals, and a tree is grown over them as over any rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from forerun.cache.view import Part
from forerun.core.draft import Tree
from forerun.core.noise import Noise
from forerun.drafters.growth import Growth
from forerun.drafters.marginal import grow_over
from forerun.drafters.recurrent import ReadingOptions, RecurrentDrafter


class ParallelDrafter(RecurrentDrafter):
    """One forward a draft, however deep."""

    name = "p-eagle"
    Options = ReadingOptions

    def _grow(self, growths: Sequence[Growth], noise: Noise) -> None:
        self._catch_up(growths)
        if not growths:
            return
        mask, masked = self._runner.head.floats("mask_hidden"), self.config.mask_id
        assert masked is not None
        depths = [growth.levels for growth in growths]
        parts, tokens, features = [], list[int](), list[Tensor]()
        for growth, depth in zip(growths, depths, strict=True):
            slots = self._slots[growth.seq]
            tree = Tree.chain(slots.tokens[-1], [masked] * (depth - 1))
            parts.append(Part(self._slots.table(growth.seq), slots.held, len(slots.tokens) - 1, tree))
            tokens += [*slots.tokens, *tree.tokens[1:]]
            features += [*slots.features, *[mask.to(slots.features[0])] * (depth - 1)]
        done = self._runner.forward(parts, tokens, torch.stack(features), own=False)
        for growth, part in zip(growths, parts, strict=True):
            self._slots.fed(growth.seq, part.certain + 1)
        grid = pad_sequence(list(torch.split(done.logits, depths)), batch_first=True)  # [B, most depths, words]
        grow_over(growths, grid, self._runner, self._vocab, noise)
