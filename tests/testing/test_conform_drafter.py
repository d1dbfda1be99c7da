"""The kit must see a fault: each of these drafters breaks one promise."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from forerun.core.draft import Draft, Tree
from forerun.core.errors import BrokenInvariant
from forerun.core.noise import draft_slot
from forerun.drafters.model import ModelDrafter
from forerun.testing.conformance import check_drafter, toy_law
from forerun.testing.noisy import NoisyDrafter
from forerun.testing.toy import ToyTarget


class Faulty(NoisyDrafter):
    """Right until `spoil` touches its trees."""

    def __init__(self, spoil, kind="chosen") -> None:
        super().__init__(toy_law(), kind=kind)
        self.spoil = spoil

    def draft(self, seqs, plan, noise):
        trees = super().draft(seqs, plan, noise).trees
        return Draft(
            tuple(self.spoil(tree, seq) if len(tree) > 1 else tree for tree, seq in zip(trees, seqs, strict=True))
        )


def deeper(tree, seq):
    return replace(tree, tokens=(*tree.tokens, *[1] * 9), parents=(*tree.parents, *range(len(tree) - 1, len(tree) + 8)))


FAULTS = {
    "root": (lambda tree, seq: replace(tree, tokens=(11 - seq.last, *tree.tokens[1:])), "the root of"),
    "plan": (deeper, "the plan"),
    "law": (lambda tree, seq: replace(tree, law="sampled", q={n: torch.ones(12) for n in tree.parents}), "laws"),
    "vocabulary": (lambda tree, seq: replace(tree, tokens=(tree.tokens[0], 12, *tree.tokens[2:])), "vocabulary"),
    "parents": (lambda tree, seq: replace(tree, parents=(-1, *range(1, len(tree)))), "parents come first"),
    "twins": (
        lambda tree, seq: Tree((seq.last, 1, 1), (-1, 0, 0)) if len(set(tree.parents)) < len(tree) else tree,
        "repeat a token",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_trees_that_are_not_what_they_should_be(fault):
    spoil, words = FAULTS[fault]
    with pytest.raises((AssertionError, BrokenInvariant), match=words):
        check_drafter(lambda: Faulty(spoil))


@pytest.mark.parametrize("kind", ["sampled", "distinct"])
def test_a_q_that_was_not_drawn_from(kind):
    def softer(tree, seq):
        return replace(tree, q={node: row.sqrt() for node, row in tree.q.items()})

    with pytest.raises(AssertionError, match="not drawn by the noise from q"):
        check_drafter(lambda: Faulty(softer, kind))


def test_the_same_question_twice():
    class Twice(NoisyDrafter):
        def draft(self, seqs, plan, noise):
            for _ in range(2):
                noise.pick(0, draft_slot(0, 0), torch.ones(2))
            return super().draft(seqs, plan, noise)

    with pytest.raises(AssertionError, match="asked twice"):
        check_drafter(lambda: Twice(toy_law()))


def test_a_memory_that_does_not_hear_the_verdict():
    class Deaf(ModelDrafter):
        def accept(self, seqs, draft, rows, verdict):
            self._grown.clear()

    with pytest.raises(BrokenInvariant, match="nodes said to be held"):
        check_drafter(lambda: Deaf(ToyTarget(toy_law(), 12)))


def test_what_is_kept_after_the_end():
    toy = ToyTarget(toy_law(), 12)

    class Keeping(ModelDrafter):
        def end(self, seq):
            if not seq.finished:
                super().end(seq)

    with pytest.raises(AssertionError, match="still holds"):
        check_drafter(lambda: Keeping(toy), holds=lambda: len(toy._held))
