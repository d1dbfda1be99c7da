"""The drafter that guesses nothing: plain decoding, through the same loop as everything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forerun.core.draft import Draft, Law, Verdict
from forerun.core.noise import Noise
from forerun.core.plan import Plan
from forerun.core.rows import Rows
from forerun.core.seq import Seq


@dataclass(frozen=True, slots=True)
class NoOptions:
    """There is nothing to set."""


class NoDrafter:
    """Drafts the root alone, whatever the plan."""

    name = "none"
    Options = NoOptions
    laws: frozenset[Law] = frozenset({"chosen"})
    taps: tuple[int, ...] = ()

    def __init__(self, options: NoOptions | None = None) -> None:
        """Takes options as every drafter does; there are none."""

    def begin(self, seq: Seq) -> None:
        """Nothing is kept."""

    def read(self, rows: Rows) -> None:
        """No taps."""

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """Roots."""
        return Draft.roots(seq.last for seq in seqs)

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """Nothing is learnt."""

    def end(self, seq: Seq) -> None:
        """Nothing is kept."""
