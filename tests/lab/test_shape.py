"""Sweeps of a drafter, and what is said of them: on made-up times, where the truth is known."""

import random
from dataclasses import replace

import pytest

from forerun.core.errors import SpecError
from forerun.lab.bench import AGAIN, PLAIN
from forerun.lab.paired import Asked, Samples, Unit
from forerun.lab.run import Run
from forerun.lab.sample import Sample
from forerun.lab.shape import Grid, best, depth_pays, halves, run_shape, shapes, stops_paying_at, tau_pairs
from forerun.lab.shape_view import _sentences, view
from forerun.lab.stats import Interval
from forerun.lab.views import Chart, spoken

GRID = Grid((1, 2, 4, 8), (1, 2, 3), (3, 7))
QUIET = Interval(1.0, 0.99, 1.01, 12)


def sample(ms, passes=10):
    seconds = ms * 20 / 1e3
    return Sample(
        1, 20, seconds, 0.1, seconds, passes, 20, {"score": seconds}, 20, passes, 10, 5, (passes,), (5,), "same"
    )


def samples(prompts, **arms):
    """`arms`: name -> milliseconds a token of each prompt."""
    every = {"plain": [4.0] * prompts, **arms}
    named = {name.replace("_", ":"): times for name, times in every.items()}
    return Samples(
        [Unit("w", f"p{i}", 0, 0, {name: sample(times[i]) for name, times in named.items()}) for i in range(prompts)]
    )


def test_only_what_a_drafter_heeds_is_swept():
    found = shapes("ngram", GRID, 59)
    assert [plan.depth for plan in found.depth] == [1, 2, 4, 8]
    assert (found.width, found.nodes, found.pairs, found.auto) == ((), (), (), None)
    assert list(found.by_arm) == [f"ngram:depth={depth}" for depth in (15, 1, 2, 4, 8)]


def test_a_trees_sweeps_change_one_thing_each():
    found = shapes("suffix", GRID, 39)
    assert {(p.width, p.nodes) for p in found.depth} == {(1, 256)}
    assert {p.depth for p in found.width} == {4}
    assert [p.width for p in found.width] == [1, 2, 3]
    assert {p.width for p in found.nodes} == {3}
    assert [p.nodes for p in found.nodes] == [3, 7]
    assert (found.auto.nodes, found.auto.depth) == (39, found.default.depth)
    by_depth = [pair for pair in found.pairs if pair.equal == "depth"]
    by_rows = [pair for pair in found.pairs if pair.equal == "rows"]
    assert {pair.chain for pair in by_depth} == {"suffix:depth=4"}
    assert [(pair.chain, pair.plan.nodes) for pair in by_rows] == [("suffix:depth=3", 3), ("suffix:depth=7", 7)]
    arms = found.by_arm
    assert {name for pair in found.pairs for name in (pair.chain, pair.tree)} <= set(arms)
    assert len(set(arms.values())) == len(arms)


def test_a_spec_of_trees_keeps_its_own_width_and_budget():
    found = shapes("suffix:width=2,nodes=8,depth=6", GRID, None)
    assert [(p.depth, p.width, p.nodes) for p in found.depth] == [(1, 2, 8), (2, 2, 8), (4, 2, 8), (8, 2, 8)]
    assert {p.nodes for p in found.width if p.width > 1} == {8}
    assert {p.width for p in found.nodes} == {2}
    assert found.auto is None


@pytest.mark.parametrize("values", [(), (0, 1), (2, 2)])
def test_a_grid_needs_different_numbers(values):
    with pytest.raises(SpecError, match="different whole numbers"):
        Grid(values, (1,), (3,))


@pytest.mark.parametrize(
    ("ms", "stops"),
    [
        ({1: 3.0, 2: 2.0, 4: 2.0, 8: 2.5}, 2),
        ({1: 3.0, 2: 3.2, 4: 2.0, 8: 2.0}, 4),
        ({1: 3.0, 2: 2.5, 4: 2.0, 8: 1.5}, None),
        ({1: 3.0, 2: 3.0, 4: 3.0, 8: 3.01}, 1),
    ],
)
def test_depth_stops_paying_where_no_deeper_one_is_faster(ms, stops):
    found = samples(6, **{f"d{depth}": [value] * 6 for depth, value in ms.items()})
    depths = [(depth, f"d{depth}") for depth in ms]
    assert stops_paying_at(found, depths, QUIET) == stops
    assert stops_paying_at(found, depths, None) is None
    few = samples(2, **{f"d{depth}": [value] * 2 for depth, value in ms.items()})
    assert stops_paying_at(few, depths, QUIET) is None


def test_where_a_depth_was_not_timed_nothing_stops_paying():
    found = samples(6, d1=[3.0] * 6, d2=[3.0] * 6, d4=[3.0] * 6)
    untimed = Samples(
        [replace(unit, samples={**unit.samples, "d4": replace(unit.samples["d4"], tokens=0)}) for unit in found.units]
    )
    depths = [(1, "d1"), (2, "d2"), (4, "d4")]
    assert stops_paying_at(found, depths, QUIET) == 1
    assert stops_paying_at(untimed, depths, QUIET) is None
    assert stops_paying_at(untimed, depths[:2], QUIET) == 1


@pytest.mark.parametrize(
    ("verdicts", "pays"),
    [
        (["slower", "faster"], True),
        (["slower", "no difference"], False),
        (["slower", "too few prompts"], None),
        ([None, None], None),
    ],
)
def test_no_depth_pays_only_if_all_of_them_could_be_judged(verdicts, pays):
    assert depth_pays(verdicts) is pays


def test_a_drafter_that_slows_down_at_every_depth_does_not_stop_paying_at_one():
    found = {"depth": [{"depth": 1}, {"depth": 4}], "stops_paying_at": 1, "depth_pays": False, "best": None}
    first, _ = _sentences(found)
    assert first == "no depth pays: none up to 4 is faster than plain decoding beyond the noise"


def test_halves_share_no_prompt_and_are_drawn_again_alike():
    found = samples(7)
    choose, tell = halves(found, 3)
    names = [{unit.prompt for unit in part.units} for part in (choose, tell)]
    assert (len(names[0]), len(names[1])) == (3, 4)
    assert not names[0] & names[1]
    assert {unit.prompt for unit in halves(found, 3)[0].units} == names[0]
    assert any({unit.prompt for unit in halves(found, seed)[0].units} != names[0] for seed in range(4, 9))


def test_the_best_of_many_that_are_equal_is_not_told_to_be_faster():
    """The winner's curse: every shape takes as long as the default, give or take a tenth."""
    swept = shapes("suffix", Grid((1, 2, 3, 4, 6, 8, 12), (1, 2, 3), (3, 7)), 39)
    where_chosen, told = [], []
    for seed in range(12):
        rng = random.Random(seed)
        arms = {name.replace(":", "_"): [4.0 * rng.uniform(0.9, 1.1) for _ in range(12)] for name in swept.by_arm}
        found = best(samples(12, **arms), swept, QUIET, seed)
        where_chosen.append(found["speedup_where_chosen"])
        told.append(found["speedup"]["value"])
    assert min(where_chosen) > 1.0
    assert sum(where_chosen) / 12 > 1.04
    assert sum(told) / 12 == pytest.approx(1.0, abs=0.025)


def test_a_shape_that_is_best_is_found_and_compared_with_the_default():
    swept = shapes("suffix", GRID, None)
    arms = {name.replace(":", "_"): [3.0] * 12 for name in swept.by_arm} | {"suffix_depth=4": [2.0] * 12}
    found = best(samples(12, **arms), swept, QUIET, 0)
    assert (found["spec"], found["plan"]) == ("suffix:depth=4", {"depth": 4, "width": 1, "nodes": 4})
    assert (found["speedup"]["value"], found["over_default"]["value"]) == (2.0, 1.5)
    assert (found["verdict"], found["over_default_verdict"]) == ("faster", "faster")
    assert (found["chosen_on"], found["told_of"]) == (6, 6)
    few = best(samples(10, **{name: times[:10] for name, times in arms.items()}), swept, QUIET, 0)
    assert (few["verdict"], few["told_of"]) == ("too few prompts", 5)
    assert best(samples(1, **{name: times[:1] for name, times in arms.items()}), swept, QUIET, 0) is None


def test_tokens_a_pass_are_paired_by_prompt():
    units = [Unit("w", f"p{i}", 0, 0, {"a": sample(1, 5), "b": sample(1, 10)}) for i in range(3)]
    assert tau_pairs(Samples(units), "a", "b") == [(4.0, 2.0)] * 3


def test_a_real_run_has_every_sweep_and_can_be_shown(bench, work):
    grid = Grid((1, 2, 4), (1, 2), (3,))
    asked = Asked({"max_tokens": 10, "ignore_eos": True})
    specs = ("suffix", "ngram")
    figures, found = run_shape(bench, Run("shape", None, {}), specs, [work], asked, grid)
    assert len(bench.drafters) == 3  # none, suffix, ngram: all shapes of one share it
    here = figures["workloads"]["toys"]["drafters"]
    assert set(here) == set(specs)
    assert [point["depth"] for point in here["suffix"]["depth"]] == [1, 2, 4]
    assert here["suffix"]["auto_nodes"]["nodes"] == figures["probe"]["nodes"]
    assert here["ngram"]["auto_nodes"] is None
    assert len(here["suffix"]["pairs"]) == 2
    for point in (*here["suffix"]["depth"], *here["suffix"]["nodes"]):
        assert point["same_text"] == point["answers"] == 3
        assert point["rows_per_pass"] <= 1 + point["nodes"]
        assert 1 <= point["tau"] <= 1 + point["depth"]
    assert set(found.units[0].samples) >= {PLAIN, AGAIN, "suffix:depth=4,width=2,nodes=15"}
    views = view(figures)
    charts = [each for each in views if isinstance(each, Chart)]
    assert [series.name for series in charts[0].series][:2] == ["suffix: speed-up", "suffix: tau"]
    assert charts[0].series[0].xs == (1.0, 2.0, 4.0)
    said = spoken(views)
    assert "chain of 4" in said
    assert "what branching adds" in said
