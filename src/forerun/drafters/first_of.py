"""A cascade of drafters that is a drafter: for each sequence the first that has anything to say is heard.

Cheap guesses go first (`ngram` costs microseconds), and a model is only asked for the sequences that are left. All
hear every verdict, so that those with a memory know what stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass

import torch

from forerun.core.draft import Draft, Law, Verdict
from forerun.core.errors import SpecError
from forerun.core.noise import Noise, Part
from forerun.core.plan import MAX_DEPTH, MAX_NODES, Plan
from forerun.core.protocols import Drafter, Recalls, Remembers
from forerun.core.rows import Rows
from forerun.core.seq import Seq


@dataclass(frozen=True, slots=True)
class CascadeOptions:
    """What a cascade is made of."""

    of: str = ""
    """The drafters in order, as prediction+ngram[min=3]."""


NO_LIMIT = Plan(MAX_DEPTH, MAX_NODES, MAX_NODES)


def lesser(plan: Plan, own: Plan) -> Plan:
    """`plan`, as far as `own` allows it."""
    depth, nodes, width = (min(getattr(plan, name), getattr(own, name)) for name in ("depth", "nodes", "width"))
    return Plan(depth, nodes, width, max(plan.confidence, own.confidence), plan.signals)


class FirstOf:
    """The first non-empty guess of `drafters`, sequence by sequence; none goes beyond its own of `plans`, if given."""

    name = "first_of"
    Options: type = CascadeOptions

    def __init__(
        self,
        drafters: Sequence[Drafter],
        plans: Sequence[Plan] | None = None,
        options: CascadeOptions | None = None,
    ) -> None:
        if not drafters:
            raise SpecError("first_of needs at least one drafter, got none")
        self.drafters = tuple(drafters)
        self.plans = tuple(plans) if plans else (NO_LIMIT,) * len(self.drafters)
        self.name = f"{type(self).name}({', '.join(drafter.name for drafter in drafters)})"
        self.laws: frozenset[Law] = frozenset().union(*(drafter.laws for drafter in drafters))
        self.taps: tuple[int, ...] = tuple(sorted({tap for drafter in drafters for tap in drafter.taps}))

    def begin(self, seq: Seq) -> None:
        """All begin."""
        for drafter in self.drafters:
            drafter.begin(seq)

    def recall(self, seq: Seq, held: int) -> int:
        """What all with taps know."""
        for drafter in self.drafters:
            if drafter.taps:
                held = drafter.recall(seq, held) if isinstance(drafter, Recalls) else 0
        return held

    def read(self, rows: Rows) -> None:
        """Those with taps read, each its own layers."""
        for drafter in self.drafters:
            if drafter.taps:
                drafter.read(self._tapped(rows, drafter))

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """Ask each drafter for the sequences that have no guess yet."""
        trees = list(Draft.roots(seq.last for seq in seqs).trees)
        for drafter, own in zip(self.drafters, self.plans, strict=True):
            left = [b for b, tree in enumerate(trees) if len(tree) == 1]
            if not left:
                break
            guesses = drafter.draft([seqs[b] for b in left], lesser(plan, own), Part(noise, left))
            for b, tree in zip(left, guesses.trees, strict=True):
                trees[b] = tree
        return Draft(tuple(trees))

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """All hear, used or not."""
        for drafter in self.drafters:
            drafter.accept(seqs, draft, self._tapped(rows, drafter), verdict)

    def end(self, seq: Seq) -> None:
        """All end, whatever one of them raises."""
        with ExitStack() as stack:
            for drafter in self.drafters:
                stack.callback(drafter.end, seq)

    def forget(self) -> None:
        """Those that remember earlier answers forget them."""
        for drafter in self.drafters:
            if isinstance(drafter, Remembers):
                drafter.forget()

    def _tapped(self, rows: Rows, drafter: Drafter) -> Rows:
        """The rows with only this drafter's taps among the hidden states, in its own order."""
        if rows.hidden is None or not drafter.taps or drafter.taps == self.taps:
            return rows
        layers = rows.hidden.chunk(len(self.taps), -1)  # taps of [T, E]
        view = copy(rows)
        view.hidden = torch.cat([layers[self.taps.index(tap)] for tap in drafter.taps], -1)
        return view


def runs_model(drafter: Drafter) -> bool:
    """Whether a drafter, or one that it is made of, has a forward of its own for each guess."""
    parts = getattr(drafter, "drafters", ())
    return bool(drafter.taps) or hasattr(drafter, "target") or any(map(runs_model, parts))
