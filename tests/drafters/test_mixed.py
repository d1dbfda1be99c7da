"""Lookups beside a model: what goes alone, what is joined, what is learnt of either."""

from __future__ import annotations

import pytest
import torch

from forerun.core.draft import Draft, Tree, Verdict
from forerun.core.errors import SpecError
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.drafters.mixed import Mixed, MixedOptions, joined
from forerun.drafters.model import ModelDrafter, ModelOptions
from forerun.drafters.ngram import NgramDrafter, NgramOptions
from forerun.testing.conformance import check_drafter
from forerun.testing.scripted import ScriptedDrafter
from forerun.testing.toy import ToyTarget, table_law

NO_ROWS = Rows([], torch.zeros(0, 4), 4)


@pytest.mark.parametrize("law", ["chosen", "foreseen", "sampled", "distinct"])
def test_conformance(law):
    own = ToyTarget(table_law(12, seed=5, order=1), 12)
    lookup = lambda: NgramDrafter(NgramOptions(min=1))
    tally = check_drafter(
        lambda: Mixed([lookup(), ModelDrafter(own, ModelOptions(law=law))]), holds=lambda: len(own._held)
    )
    assert 0 < tally.accepted < tally.drafted


def opened(mixed, count=1):
    seqs = [Seq(i, [9], SamplingParams(), 64) for i in range(count)]
    for seq in seqs:
        mixed.begin(seq)
    return seqs


def test_the_longer_promise_wins_and_is_learnt_for_each_sequence():
    """Lookups that keep being right for one sequence go alone there; where they are wrong the model is asked too."""
    lookup = ScriptedDrafter(lambda seq: [1, 2, 3, 4], "lookup")
    model = ScriptedDrafter(lambda seq: Tree((9, 7, 8), (-1, 0, 0)), "model")
    mixed = Mixed([lookup, model], options=MixedOptions(margin=1.5))
    right, wrong = opened(mixed, 2)
    for _ in range(20):
        asked = len(model.proposed)
        trees = mixed.draft([right, wrong], Plan(8, 8, 4), SeededNoise([0, 0])).trees
        path = (*range(1, 5),) if trees[0].is_chain else tuple(trees[0].path(len(trees[0]) - 1))
        child = trees[1].tokens.index(7) if 7 in trees[1].tokens else None
        verdict = Verdict((path, (child,) if child else ()), (0, 0))
        mixed.accept([right, wrong], Draft(trees), NO_ROWS, verdict)
    assert trees[0].tokens == (9, 1, 2, 3, 4)
    assert trees[1].tokens == (9, 7, 8, 1, 2, 3, 4)
    assert len(model.proposed) == asked + 1, "the model was asked for one sequence alone"


def test_a_model_that_gives_more_is_asked_however_often_the_lookup_is_right():
    lookup = ScriptedDrafter(lambda seq: [1], "lookup")
    model = ScriptedDrafter(lambda seq: Tree.chain(9, [1, 2, 3]), "model")
    mixed = Mixed([lookup, model])
    (seq,) = opened(mixed)
    for _ in range(6):
        draft = mixed.draft([seq], Plan(8, 8, 4), SeededNoise([0]))
        mixed.accept([seq], draft, NO_ROWS, Verdict((tuple(range(1, len(draft.trees[0]))),), (0,)))
    assert draft.trees[0].tokens == (9, 1, 2, 3)


def test_several_lookups_of_which_the_best_is_heard():
    bad = ScriptedDrafter(lambda seq: [5, 5], "bad")
    good = ScriptedDrafter(lambda seq: [1, 2], "good")
    model = ScriptedDrafter(lambda seq: [], "model")
    mixed = Mixed([bad, good, model])
    (seq,) = opened(mixed)
    for _ in range(8):
        draft = mixed.draft([seq], Plan(8, 8, 4), SeededNoise([0]))
        stands = draft.trees[0].tokens[1:] == (1, 2)
        mixed.accept([seq], draft, NO_ROWS, Verdict(((1, 2) if stands else (),), (0 if stands else 1,)))
    assert draft.trees[0].tokens == (9, 1, 2)


@pytest.mark.parametrize(
    ("tree", "chain", "nodes", "wanted"),
    [
        (Tree.root(9), (1, 2), 8, Tree.chain(9, (1, 2))),
        (Tree((9, 1, 2), (-1, 0, 0)), (1, 3), 8, Tree((9, 1, 2, 3), (-1, 0, 0, 1))),
        (Tree.chain(9, (1, 2, 3)), (1, 2), 8, Tree.chain(9, (1, 2, 3))),
        (Tree.chain(9, (1, 2, 3)), (), 8, Tree.chain(9, (1, 2, 3))),
        # Room for four: half of them at most for the branch; second children go before the first's first child.
        (Tree((9, 1, 2, 3), (-1, 0, 0, 1)), (7, 8, 9), 4, Tree((9, 1, 3, 7, 8), (-1, 0, 1, 0, 3))),
        # A model that says nothing takes no room.
        (Tree.root(9), (1, 2, 3, 4), 4, Tree.chain(9, (1, 2, 3, 4))),
        # Where a node has all the children that it may, its last makes room, with all below it.
        (Tree((9, 1, 2, 3, 4), (-1, 0, 0, 2, 1)), (7, 8), 8, Tree((9, 1, 4, 7, 8), (-1, 0, 1, 0, 3))),
        # What the branch grows from stays, however late it stands.
        (Tree((9, 1, 2, 3), (-1, 0, 0, 2)), (2, 3, 5), 3, Tree((9, 2, 3, 5), (-1, 0, 1, 2))),
    ],
)  # fmt: skip
def test_a_branch_joins_a_tree(tree, chain, nodes, wanted):
    got = joined(tree, chain, Plan(8, nodes, 2 if len(tree) == 5 else 4))
    got.check()
    assert (got.tokens, got.parents) == (wanted.tokens, wanted.parents)


def test_a_chain_alone_is_not_joined():
    tree = Tree.chain(9, (1, 2))
    assert joined(tree, (7, 8), Plan(8, 8, 1)) is tree
    assert joined(Tree.root(9), (7, 8), Plan(8, 8, 1)).tokens == (9, 7, 8)


def test_the_plan_holds_for_both_together_and_each_has_its_own():
    lookup = NgramDrafter(NgramOptions(min=1))
    own = ToyTarget(table_law(12, seed=5, order=1), 12)
    mixed = Mixed([lookup, ModelDrafter(own, ModelOptions())], [Plan(3), Plan(2, 4, 2)])
    seq = Seq(0, [1, 2, 3, 4, 5, 1, 2, 3], SamplingParams(), 64)
    mixed.begin(seq)
    for nodes in range(1, 9):
        (tree,) = mixed.draft([seq], Plan(8, nodes, 4), SeededNoise([0])).trees
        tree.check()
        assert tree.drafted <= nodes
        assert tree.depth <= 3
    mixed.end(seq)


def test_what_is_refused():
    with pytest.raises(SpecError, match="a lookup and a model"):
        Mixed([NgramDrafter()])
    own = ToyTarget(table_law(12, seed=5, order=1), 12)
    with pytest.raises(SpecError, match="name it last"):
        Mixed([ModelDrafter(own, ModelOptions()), NgramDrafter()])
    with pytest.raises(SpecError, match="margin"):
        MixedOptions(margin=-1.0)


def test_with_no_margin_the_model_still_speaks_where_no_lookup_does():
    model = ScriptedDrafter(lambda seq: [1, 2], "model")
    mixed = Mixed([ScriptedDrafter(lambda seq: [], "lookup"), model], options=MixedOptions(margin=0.0))
    (seq,) = opened(mixed)
    assert mixed.draft([seq], Plan(8, 8, 4), SeededNoise([0])).trees[0].tokens == (9, 1, 2)


def test_a_model_that_says_nothing_is_asked_less_and_less():
    """Its silence counts, so a lookup that is right goes alone in the end."""
    lookup = ScriptedDrafter(lambda seq: [1], "lookup")
    model = ScriptedDrafter(lambda seq: [], "model")
    mixed = Mixed([lookup, model])
    (seq,) = opened(mixed)
    for _ in range(8):
        draft = mixed.draft([seq], Plan(8, 8, 4), SeededNoise([0]))
        mixed.accept([seq], draft, NO_ROWS, Verdict(((1,),), (0,)))
    asked = model.calls
    mixed.draft([seq], Plan(8, 8, 4), SeededNoise([0]))
    assert model.calls == asked < 8
