"""A drafter that guesses nothing and remembers what the target thought: its hidden states, token by token.

States come out of the forwards that write the answers, so they cost no pass of their own. Where a request goes on from
an earlier one, the states of what they share are taken over with the target's memory of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from forerun.core.draft import Draft, Law, Verdict
from forerun.core.noise import Noise
from forerun.core.plan import Plan
from forerun.core.rows import Rows
from forerun.core.seq import Seq


@dataclass(frozen=True, slots=True)
class _Seen:
    """Of an ended request: its tokens, and the states [n, taps * E] of the first n of them."""

    tokens: list[int]
    states: Tensor

    def shared(self, tokens: Sequence[int]) -> int:
        """How many leading tokens it has the states of."""
        for at, (mine, theirs) in enumerate(zip(self.tokens[: len(self.states)], tokens, strict=False)):
            if mine != theirs:
                return at
        return min(len(self.states), len(tokens))


class Witness:
    """Keeps the states of `taps` for each sequence, bfloat16, until they are asked for with `take`."""

    name = "witness"
    laws: frozenset[Law] = frozenset({"chosen"})

    def __init__(self, taps: Sequence[int]) -> None:
        self.taps = tuple(taps)
        self._open: dict[Seq, list[Tensor]] = {}
        self._done: dict[int, _Seen] = {}
        self._before: dict[int, _Seen] = {}

    def follow(self, request: int, earlier: int) -> None:
        """`request`, which has not begun, goes on from what `earlier`, which has ended, said."""
        if earlier in self._done:
            self._before[request] = self._done[earlier]

    def recall(self, seq: Seq, held: int) -> int:
        """Of the tokens that the target holds, those whose states are known from the request before."""
        before = self._before.get(seq.id)
        return min(held, before.shared(seq.tokens)) if before else 0

    def begin(self, seq: Seq) -> None:
        """From its first token on, or the first that the target reads: what is before it was recalled."""
        self._open[seq] = []

    def read(self, rows: Rows) -> None:
        """Keep what was fed; there are never more nodes than the root."""
        assert rows.hidden is not None
        states, at = rows.hidden.bfloat16().cpu(), 0
        for item in rows.items:
            fed = item.stop - item.start + item.fresh
            parts = self._open[item.seq]
            if item.start and not parts:
                parts.append(self._before[item.seq.id].states[: item.start])
            parts.append(states[at : at + fed])
            at += fed

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """Nothing."""
        return Draft.roots(seq.last for seq in seqs)

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """Nothing to judge."""

    def end(self, seq: Seq) -> None:
        """Keep the states of an answer that ended."""
        parts = self._open.pop(seq, [])
        if seq.finished:
            self._before.pop(seq.id, None)
            if parts:
                self._done[seq.id] = _Seen(list(seq.tokens), torch.cat(parts))

    def take(self, request: int, tokens: Sequence[int]) -> Tensor:
        """States [n, taps * E] of an ended request, which is then forgotten: of all `tokens` but their last, or of as
        many as it read so. An answer that was told again in a later turn may have other ids than it was said in."""
        done = self._done.pop(request)
        return done.states[: done.shared(tokens[:-1])]

    def drop(self, request: int) -> None:
        """Forget an ended request."""
        self._done.pop(request, None)
