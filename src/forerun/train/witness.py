"""A drafter that guesses nothing and remembers what the target thought: its hidden states, token by token.

States come out of the forwards that write the answers, so they cost no pass of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forerun.core.draft import Draft, Law, Verdict
from forerun.core.noise import Noise
from forerun.core.plan import Plan
from forerun.core.rows import Rows
from forerun.core.seq import Seq


class Witness:
    """Keeps the states of `taps` for each sequence, bfloat16, until they are asked for with `take`."""

    name = "witness"
    laws: frozenset[Law] = frozenset({"chosen"})

    def __init__(self, taps: Sequence[int]) -> None:
        self.taps = tuple(taps)
        self._open: dict[Seq, list[Tensor]] = {}
        self._done: dict[int, Tensor] = {}

    def begin(self, seq: Seq) -> None:
        """From its first token on: after preemption all of it is read again."""
        self._open[seq] = []

    def read(self, rows: Rows) -> None:
        """Keep what was fed; there are never more nodes than the root."""
        assert rows.hidden is not None
        states, at = rows.hidden.bfloat16().cpu(), 0
        for item in rows.items:
            fed = item.stop - item.start + item.fresh
            self._open[item.seq].append(states[at : at + fed])
            at += fed

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """Nothing."""
        return Draft.roots(seq.last for seq in seqs)

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """Nothing to judge."""

    def end(self, seq: Seq) -> None:
        """Keep the states of an answer that ended."""
        parts = self._open.pop(seq, [])
        if seq.finished and parts:
            self._done[seq.id] = torch.cat(parts)

    def take(self, request: int) -> Tensor:
        """States [n, taps * E] of all tokens of an ended request but its last, which are then forgotten."""
        return self._done.pop(request)
