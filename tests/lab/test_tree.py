"""What a tally makes of verdicts, and the tree that follows from it."""

from __future__ import annotations

import random

import pytest

from forerun.core.draft import Tree
from forerun.core.errors import SpecError
from forerun.lab.tree import Tally, _levels, with_tree
from forerun.lab.tree_view import view
from forerun.lab.views import spoken

TREE = Tree((9, 1, 2, 3, 4), (-1, 0, 0, 1, 1))  # two children of the root, two below the first


def test_only_children_of_what_stood_are_judged():
    tally = Tally()
    tally.count(TREE, (1, 4))
    tally.count(TREE, (2,))
    tally.count(TREE, ())
    assert tally.judged == [[3, 3], [1, 1]]
    assert tally.stood == [[1, 1], [0, 1]]


def test_chances_come_out_as_they_went_in():
    """Of made-up draws: each depth's ranks stand as often as they were said to."""
    truth, draw, tally = [[0.6, 0.2], [0.5, 0.1]], random.Random(3), Tally()
    for _ in range(4000):
        path, node = [], 0
        for depth in range(2):
            children = TREE.children()[node]
            choice = draw.random()
            rank = 0 if choice < truth[depth][0] else 1 if choice < sum(truth[depth]) else None
            if rank is None or not children:
                break
            node = children[rank]
            path.append(node)
        tally.count(TREE, path)
    found = tally.chances()
    for row, true in zip(found, truth, strict=True):
        assert row == pytest.approx(true, abs=0.04)


def test_what_was_tried_seldom_is_left_out_and_no_rank_is_better_than_those_before_it():
    tally = Tally()
    tally.add([[100, 100, 100], [50, 5], [11]], [[40, 20, 25], [10, 5], [11]])
    assert tally.chances() == [[0.4, 0.2, 0.2], [0.2]]
    tally.add([[], [], [1]], [[], [], [0]])
    assert tally.chances()[2] == [11 / 12]
    with pytest.raises(SpecError, match="too seldom"):
        Tally().chances()


def test_a_spec_s_own_shape_gives_way(tmp_path):
    spec = "eagle3:path=x,law=chosen,depth=5,nodes=11,width=4,tree=eagle-25,confidence=0.1"
    assert with_tree(spec, tmp_path / "t.json") == f"eagle3:path=x,law=chosen,confidence=0.1,tree={tmp_path / 't.json'}"
    with pytest.raises(SpecError, match="ngram has no static trees"):
        with_tree("ngram", tmp_path / "t.json")


def test_plain_decoding_may_be_best():
    figures = {
        "drafter": "eagle3", "chances": [[0.1]], "judged": [[40]], "target_ms": {"1": 1.0}, "draft_ms": [3.0],
        "best": {"nodes": 0, "depth": 0}, "workloads": {}, "noise": None, "left_out": [],
    }  # fmt: skip
    assert "no tree pays here" in spoken(view(figures))


@pytest.mark.parametrize("levels", range(1, 17))
def test_what_levels_cost_is_measured_on_trees_of_so_many(levels):
    shape = _levels(levels)
    assert shape.depth == levels
    assert levels <= len(shape) <= 4 * levels
