"""Shapes as specs: what is said is what an engine does."""

import pytest

from forerun.core.errors import SpecError
from forerun.core.options import Spec
from forerun.core.plan import Plan
from forerun.drafters.specs import split_plan
from forerun.lab import plans


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ("suffix", "suffix:depth=15"),
        ("suffix:width=3,nodes=15,depth=4,min_prob=0.2", "suffix:min_prob=0.2,depth=4,width=3,nodes=15"),
        ("suffix:width=3,nodes=3", "suffix:depth=3,width=3,nodes=3"),
        ("skip:layers=2,confidence=0.5", "skip:layers=2,confidence=0.5,depth=3"),
        ("ngram:depth=7", "ngram:depth=7"),
    ],
)
def test_a_spec_says_its_plan_in_one_way(spec, want):
    said = plans.said(spec, plans.base_plan(spec))
    assert said == want
    assert plans.said(said, plans.base_plan(said)) == said
    before, after = (split_plan(Spec.parse(text)) for text in (spec, said))
    assert plans.normal(before[0]) == plans.normal(after[0])
    assert before[2] == after[2]


def test_chains_and_trees():
    base = Plan(depth=3, confidence=0.4)
    assert plans.to_json(plans.chain(base, 5)) == {"depth": 5, "width": 1, "nodes": 5}
    assert plans.tree(base, 4, 1, 15) == plans.chain(base, 4)
    assert plans.to_json(plans.tree(base, 4, 2, 3)) == {"depth": 3, "width": 2, "nodes": 3}
    assert plans.tree(base, 4, 2, 15).confidence == 0.4


def test_what_guesses_nothing_has_no_shape():
    with pytest.raises(SpecError, match="guesses nothing"):
        plans.base_plan("none")


def test_a_chain_of_a_drafter_that_makes_trees_says_so():
    """What says nothing of its width is a tree there."""
    for spec in ("eagle3", "eagle3:width=1,confidence=0", "medusa:path=x"):
        plan = plans.chain(plans.base_plan(spec), 3)
        again = split_plan(Spec.parse(plans.said(spec, plan)))[0]
        assert (again.width, min(again.nodes, again.depth)) == (1, 3), plans.said(spec, plan)
