"""Medusa heads as a drafter: every head guesses one distance ahead from the same state (Cai et al. 2401.10774).

Heads know nothing of one another's guesses, so the likeliest words of each distance are combined to a tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forerun.core.draft import Draft, Law, Tree, Verdict
from forerun.core.noise import Noise
from forerun.core.plan import Plan
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.costs.prices import FREE_WORTH, Worth
from forerun.drafters.growth import Growth
from forerun.drafters.marginal import grow_over
from forerun.drafters.recurrent import HeadOptions
from forerun.models.heads.config import MedusaConfig
from forerun.models.heads.runner import MedusaRunner
from forerun.trees.named import shape_of


class MedusaDrafter:
    """Drafts with `runner`'s heads for a target of `vocab` words and `layers` layers; they have no memory of slots."""

    name = "medusa"
    Options: type = HeadOptions

    def __init__(
        self,
        runner: MedusaRunner,
        options: HeadOptions,
        *,
        vocab: int,
        layers: int,
        kv_tokens: int = 0,
        remember: bool = True,
        worth: Worth = FREE_WORTH,
    ) -> None:
        config = runner.head.config
        assert isinstance(config, MedusaConfig)
        self.options, self.config, self._worth = options, config, worth
        self.laws: frozenset[Law] = frozenset({"chosen", options.law})
        self._shape = shape_of(options.tree) if options.tree else None
        self.taps = (layers,)
        self._runner, self._vocab = runner, vocab
        self._latest: dict[Seq, Tensor | None] = {}

    def begin(self, seq: Seq) -> None:
        """Open the sequence."""
        self._latest[seq] = None

    def recall(self, seq: Seq, held: int) -> int:
        """All: what counts is the state of the last token alone."""
        return held

    def read(self, rows: Rows) -> None:
        """Note the target's state of each sequence's last certain token."""
        assert rows.hidden is not None
        at = 0
        for item in rows.items:
            at += item.stop - item.start
            if item.stop > item.start and item.seq in self._latest:
                self._latest[item.seq] = rows.hidden[at - 1]
            at += item.fresh

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """Note the target's state of the last token that stands."""
        assert rows.hidden is not None
        at = 0
        for b, item in enumerate(rows.items):
            at += item.stop - item.start
            if b < len(seqs) and item.seq in self._latest:
                self._latest[item.seq] = rows.hidden[at + (verdict.paths[b] or (0,))[-1]]
            at += item.fresh

    def end(self, seq: Seq) -> None:
        """Forget the sequence."""
        self._latest.pop(seq, None)

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """A tree for each sequence of which the target has read something."""
        growths, states = [], []
        for b, seq in enumerate(seqs):
            depth, state = min(plan.depth, seq.room, self.config.count), self._latest.get(seq)
            if depth > 0 and plan.nodes and state is not None:
                options = self.options
                growths.append(Growth(seq, b, depth, plan.width, plan, options.law, self._shape, self._worth))
                states.append(state)
        if growths:
            marginals = self._runner.forward(torch.stack(states))
            grow_over(growths, marginals, self._runner, self._vocab, noise)
        grown = {growth.seq: growth.tree() for growth in growths}
        return Draft(tuple(grown.get(seq) or Tree.root(seq.last) for seq in seqs))
