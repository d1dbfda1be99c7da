"""Static trees: what they may be, the published ones, the search, and the best one against trying all."""

from __future__ import annotations

import itertools
import json

import pytest

from forerun.core.errors import SpecError
from forerun.trees.best import best_tree
from forerun.trees.named import shape_of
from forerun.trees.search import expected, search
from forerun.trees.shape import Shape

CHANCES = [(0.6, 0.2, 0.1), (0.5, 0.25), (0.4, 0.1, 0.1, 0.05)]


def test_published_trees():
    eagle, medusa = shape_of("eagle-25"), shape_of("medusa-63")
    assert (len(eagle), eagle.depth, eagle.width) == (25, 5, 4)
    assert (len(medusa), medusa.depth, medusa.width) == (63, 4, 10)
    assert eagle.children[()] == 4
    assert shape_of("chain-3").paths == ((0,), (0, 0), (0, 0, 0))


def test_a_file_of_rank_paths(tmp_path):
    path = tmp_path / "tree.json"
    path.write_text(json.dumps([[0, 1], [0], [0, 0], [1]]))
    assert shape_of(str(path)).paths == ((0,), (1,), (0, 0), (0, 1))
    for bad in ("[1]", "{}", "[[0], [0, true]]", "[[", '[[0], ["a"]]'):
        path.write_text(bad)
        with pytest.raises(SpecError, match="holds no tree"):
            shape_of(str(path))


@pytest.mark.parametrize("paths", [[[1]], [[0, 0]], [[0], [0]], [[]], [[0], [-1]], [[0], [0, 1]]])
def test_what_is_no_tree(paths):
    with pytest.raises(SpecError):
        Shape.of(paths)


def test_an_unknown_name_is_met_with_a_near_one():
    with pytest.raises(SpecError, match="medusa-63"):
        shape_of("medusa-36")


def every_tree(rows: int, depth: int, width: int):
    """All shapes of rows - 1 nodes, by brute force."""
    nodes = [path for d in range(1, depth + 1) for path in itertools.product(range(width), repeat=d)]
    for chosen in itertools.combinations(nodes, rows - 1):
        try:
            yield Shape.of(chosen)
        except SpecError:
            continue


@pytest.mark.parametrize("rows", [2, 3, 4, 5])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_search_and_the_programme_equal_trying_all(rows, depth):
    chances = [row[:2] for row in CHANCES]
    want = max((expected(shape, chances) for shape in every_tree(rows, depth, 2)), default=None)
    found = search(chances, rows - 1, depth)
    if want is None:
        return
    assert expected(found, chances) == pytest.approx(want, abs=1e-12)
    only = {1: 1e9, rows: 1.0}
    best = best_tree(chances, only, lambda levels: 0.0, depth)
    assert best.tokens == pytest.approx(want, abs=1e-12)
    assert best.tokens == pytest.approx(expected(best.shape, chances), abs=1e-12)


def test_depth_is_paid_for():
    target = dict.fromkeys(range(1, 17), 1.0)
    free = best_tree(CHANCES, target, lambda levels: 0.0)
    dear = best_tree(CHANCES, target, lambda levels: 0.3 * levels)
    assert len(free.shape) == 15
    assert dear.shape.depth < free.shape.depth
    assert dear.tokens_per_s < free.tokens_per_s
    assert dear.seconds == pytest.approx(1.0 + 0.3 * dear.shape.depth)


def test_no_tree_where_none_pays():
    target = {rows: float(rows) for rows in range(1, 9)}
    best = best_tree([(0.4, 0.2)], target, lambda levels: 0.5 * levels)
    assert len(best.shape) == 0
    assert best.tokens_per_s == 1.0


def test_rows_that_were_not_measured_are_not_taken():
    best = best_tree(CHANCES, {1: 1.0, 4: 1.1, 8: 1.2}, lambda levels: 0.01 * levels)
    assert len(best.shape) + 1 in (4, 8)


@pytest.mark.parametrize("chances", [[], [()], [(0.5, 0.6)], [(-0.1,)], [(0.2, 0.3)]])
def test_chances_that_cannot_be(chances):
    with pytest.raises(SpecError, match="chances"):
        search(chances, 3, 2)


def test_times_that_cannot_be():
    with pytest.raises(SpecError, match="1 row"):
        best_tree(CHANCES, {2: 1.0}, lambda levels: 0.0)
