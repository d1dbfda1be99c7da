"""Drafters that say what a test wants them to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forerun.core.draft import Draft, Law, Tree, Verdict
from forerun.core.noise import Noise
from forerun.core.plan import Plan
from forerun.core.rows import Rows
from forerun.core.seq import Seq

Guess = Callable[[Seq], "Sequence[int] | Tree"]


class ScriptedDrafter:
    """Drafts `guess(seq)`: a list of tokens for a chain, cut to the plan and the room, or a whole tree as it is."""

    laws: frozenset[Law] = frozenset({"chosen"})
    taps: tuple[int, ...] = ()

    def __init__(self, guess: Guess, name: str = "scripted") -> None:
        self.name = name
        self.calls = 0
        self.proposed: list[Tree] = []
        self.open: set[Seq] = set()
        self.verdicts: list[Verdict] = []
        self._guess = guess

    def begin(self, seq: Seq) -> None:
        self.open.add(seq)

    def read(self, rows: Rows) -> None:
        raise AssertionError("no taps were asked for")

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        self.calls += 1
        trees = [self._tree(seq, plan) for seq in seqs]
        self.proposed += trees
        return Draft(tuple(trees))

    def _tree(self, seq: Seq, plan: Plan) -> Tree:
        guess = self._guess(seq)
        if isinstance(guess, Tree):
            return guess
        return Tree.chain(seq.last, list(guess)[: min(plan.depth, plan.nodes, seq.room)])

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        self.verdicts.append(verdict)

    def end(self, seq: Seq) -> None:
        self.open.discard(seq)


def by_position(script: Sequence[int]) -> Guess:
    """Guess the script's ids by output position, right or wrong."""
    return lambda seq: script[len(seq.output) :]


def always(tokens: Sequence[int]) -> Guess:
    """Guess the same tokens at every step."""
    return lambda seq: tokens
