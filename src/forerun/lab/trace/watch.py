"""Eyes on one answer: what was drafted before anything was dropped, and what the target thought of every guess.

Looking at rows costs time, so it is done behind the verifier's back: after it has judged, and its seconds are counted
apart, for the bars of a step to show what the step would cost unwatched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

import torch
from torch import Tensor

from forerun.core.draft import Draft, Tree, Verdict
from forerun.core.noise import Noise
from forerun.core.plan import Plan
from forerun.core.protocols import Drafter, StepTrace, Verifier
from forerun.core.rows import Rows
from forerun.core.seq import Seq

TOP = 4  # of the target's likeliest tokens that are kept of a row


@dataclass(frozen=True, slots=True)
class Look:
    """The target's row after a node: probabilities of the tokens that were guessed or came there, and its likeliest.

    As the token is drawn from; of a greedy answer, whose row is one token alone, as it would be at temperature 1.
    """

    chances: dict[int, float]
    likeliest: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """One step of one answer."""

    step: StepTrace
    proposed: Tree
    """The drafter's tree, before what cannot be used was dropped from it."""
    looks: dict[int, Look]
    """By node of the tree that was scored: those that have children, or on which the path ends."""
    watching_s: float
    """Of the verify phase, seconds that went into looking."""

    @property
    def seconds(self) -> dict[str, float]:
        """Of each phase, without the looking."""
        seconds = dict(self.step.seconds)
        if "verify" in seconds:
            seconds["verify"] = max(0.0, seconds["verify"] - self.watching_s)
        return seconds


@dataclass(slots=True)
class Notes:
    """What the eyes saw of the step that runs, and the steps that are done."""

    proposed: Tree | None = None
    looks: dict[int, Look] = field(default_factory=dict)
    watching_s: float = 0.0
    steps: list[Seen] = field(default_factory=list)

    def hear(self, step: StepTrace) -> None:
        """Put a step down that is done; a listener."""
        self.steps.append(Seen(step, self.proposed or step.draft.trees[0], self.looks, self.watching_s))
        self.proposed = None


class WatchedDrafter:
    """A drafter whose tree is noted as it comes."""

    def __init__(self, inner: Drafter, notes: Notes) -> None:
        self.name, self.laws, self.taps = inner.name, inner.laws, inner.taps
        self._inner, self._notes = inner, notes
        self.begin, self.read, self.accept, self.end = inner.begin, inner.read, inner.accept, inner.end

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """As the inner one's."""
        draft = self._inner.draft(seqs, plan, noise)
        self._notes.proposed = draft.trees[0]
        return draft


class WatchedVerifier:
    """A verifier whose rows are looked at when it is done with them."""

    def __init__(self, inner: Verifier, notes: Notes) -> None:
        self.name, self.laws, self.lossless = inner.name, inner.laws, inner.lossless
        self.chains_only, self.greedy_only = inner.chains_only, inner.greedy_only
        self._inner, self._notes = inner, notes

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        """As the inner one's."""
        verdict = self._inner(draft, rows, noise)
        start = perf_counter()
        self._notes.looks = looks(draft.trees[0], verdict.paths[0], verdict.bonus[0], rows)
        self._notes.watching_s = perf_counter() - start
        return verdict


def looks(tree: Tree, path: Sequence[int], bonus: int, rows: Rows) -> dict[int, Look]:
    """What the target thought after each node of the first tree of `rows` that a guess or the bonus stands below."""
    end = path[-1] if path else 0
    wanted: dict[int, list[int]] = {end: [bonus]}
    for node, parent in enumerate(tree.parents[1:], start=1):
        wanted.setdefault(parent, []).append(tree.tokens[node])
    found = {}
    for node, tokens in wanted.items():
        row = _chances(rows, node)
        values, ids = row.topk(min(TOP, row.shape[0]))
        chances = dict(zip(tokens, row[tokens].tolist(), strict=True))
        found[node] = Look(chances, tuple(zip(ids.tolist(), values.tolist(), strict=True)))
    return found


def _chances(rows: Rows, node: int) -> Tensor:
    """Probabilities [V] of the token after a node."""
    if rows.items[0].seq.params.greedy:
        return torch.softmax(rows.edited(0, node), -1)
    return rows.probs(0, node)
