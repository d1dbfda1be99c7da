"""The grid of candidates: every depth, trees where they grow, and each drafter in its turn."""

from forerun.core.plan import Plan
from forerun.lab.advice.grid import candidates, spelled


def test_the_grid_has_every_depth_and_trees_where_they_grow():
    specs = [c.spec for c in candidates(["ngram", "suffix"])]
    assert {"ngram", "ngram:depth=1", "ngram:depth=8", "suffix:depth=4,width=3,nodes=15"} <= set(specs)
    assert len(specs) == len(set(specs))
    assert not any("width" in spec for spec in specs if spec.startswith("ngram"))


def test_a_shape_that_is_given_is_taken_as_it_is():
    (only,) = candidates(["suffix:depth=5,factor=2"])
    assert only.plan == Plan(5)
    assert only.spec == "suffix:factor=2,depth=5"


def test_a_spec_says_what_differs_from_the_default():
    assert spelled("ngram", {"min": "3"}, Plan(15), Plan(15)) == "ngram:min=3"
    assert spelled("skip", {}, Plan(2, width=2, nodes=6, confidence=0.3), Plan(3)) == (
        "skip:depth=2,width=2,nodes=6,confidence=0.3"
    )
