"""The curve: every point in every round, contexts that never change, figures that follow from the samples."""

import json
from collections import Counter

import pytest

from forerun.core.errors import CapacityError, SpecError
from forerun.costs.curve import CostCurve, Point
from forerun.lab.bandwidth import Bandwidth
from forerun.lab.costs.curve import MOST_ROWS, Grid, Samples, measure
from forerun.lab.costs.curve_view import figures, view
from forerun.lab.subject import Subject
from forerun.lab.views import Chart, Note, spoken
from forerun.testing.toy import ToyTarget, fixed_law

GRID = Grid(rows=(1, 3, 8), batches=(1, 2), contexts=(5, 20), repeats=4)


def toy(**options):
    return ToyTarget(fixed_law([0.25] * 4), 4, **options)


class Watched:
    """A target that notes every forward with a tree, and whose contexts must be as they were."""

    def __init__(self, inner):
        self.inner, self.scored = inner, []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def score(self, work, keep=False, taps=()):
        if work[0].tree is not None:
            contexts = {self.inner.held(item.seq) + 1 for item in work}
            assert len(contexts) == 1
            fed = {item.stop - item.start + len(item.tree) for item in work}
            assert len(fed) == 1
            self.scored.append(Point(fed.pop(), len(work), contexts.pop()))
        return self.inner.score(work, keep)


@pytest.mark.parametrize("feed", ["chain", "tree", "prompt"])
def test_every_round_has_every_point_and_contexts_stay(feed):
    target = Watched(toy())
    grid = Grid(GRID.rows, GRID.batches, GRID.contexts, GRID.repeats, feed)
    samples = measure(target, grid)
    assert set(samples.seconds) == set(grid.points)
    assert {len(values) for values in samples.seconds.values()} == {grid.repeats}
    assert Counter(target.scored) == dict.fromkeys(grid.points, 1 + 2 * grid.repeats)  # once to warm up
    assert not target.inner._held, "every sequence is closed again"


def test_a_visit_is_two_forwards_and_rounds_have_orders_of_their_own():
    target = Watched(toy())
    measure(target, GRID)
    count = len(GRID.points)
    visits = target.scored[count:]
    assert visits[::2] == visits[1::2]
    rounds = [tuple(visits[2 * i * count : 2 * (i + 1) * count : 2]) for i in range(GRID.repeats)]
    assert all(Counter(order) == Counter(GRID.points) for order in rounds)
    assert len(set(rounds)) == GRID.repeats


def test_trees_branch_and_chains_do_not():
    for feed, depth in (("chain", 7), ("tree", 3)):
        target = toy()
        seen = []
        inner = target.score
        target.score = lambda work, keep=False, inner=inner, seen=seen: seen.extend(work) or inner(work, keep)
        measure(target, Grid((8,), contexts=(4,), repeats=1, feed=feed))
        assert {item.tree.depth for item in seen if item.tree is not None} == {depth}


def test_sequences_are_closed_when_a_forward_fails():
    target = toy()
    inner = target.score

    def fails(work, keep=False):
        if len(work) == 2:
            raise RuntimeError("broken")
        return inner(work, keep)

    target.score = fails
    with pytest.raises(RuntimeError, match="broken"):
        measure(target, GRID)
    assert not target._held


def test_between_is_called_before_and_after_each_round():
    calls = []
    measure(toy(), Grid((1,), contexts=(2,), repeats=3), between=calls.append)
    assert calls == [0, 1, 2, 3]


def test_too_short_a_context_and_too_little_memory_are_said_so():
    with pytest.raises(SpecError, match="reaches 28 tokens"):
        measure(toy(max_len=27), GRID)
    with pytest.raises(CapacityError, match="kv_tokens"):
        measure(toy(slots=30), GRID)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"rows": ()}, "rows"),
        ({"rows": (1, 1)}, "rows"),
        ({"rows": (0,)}, "rows"),
        ({"batches": (-1,)}, "batch"),
        ({"contexts": ()}, "context"),
        ({"repeats": 0}, "repeats"),
        ({"feed": "sideways"}, "feed"),
        ({"rows": (MOST_ROWS + 1,)}, "at most"),
        ({"rows": (64,), "batches": (64,)}, "fewer of either"),
    ],
)
def test_a_grid_that_cannot_be_meant_is_refused(options, hint):
    with pytest.raises(SpecError, match=hint):
        Grid(**options)


def test_points_with_too_many_rows_are_left_out_by_name():
    grid = Grid(rows=(1, 64), batches=(1, 64), contexts=(16,))
    assert grid.left_out == [Point(64, 64, 16)]
    assert len(grid.points) == 3
    assert grid.widest == 64


SECONDS = {
    Point(1, 1, 8): [0.010, 0.020, 0.012], Point(16, 1, 8): [0.013, 0.022, 0.018],
    Point(1, 4, 8): [0.020, 0.040, 0.018], Point(16, 4, 8): [0.030, 0.080, 0.024],
}  # fmt: skip


@pytest.fixture
def found():
    subject = Subject(toy(), "torch", "bf16", {}, "bf16", "avx512", 2, 9_000_000, 125_000)
    grid, samples = Grid((1, 16), (1, 4), (8,), 3), Samples(SECONDS)
    bandwidth = Bandwidth(subject.weight_bytes, lambda nbytes, seconds: 2e9, cache_bytes=32 << 20)
    bandwidth.measure()
    return figures(subject, grid, samples, bandwidth)


def test_figures_follow_from_the_samples(found):
    values = json.loads(json.dumps(found, allow_nan=False))
    assert values["ms_by_rows"] == {"1": 12.0, "16": 18.0}
    assert (values["weights"], values["isa"], values["weights_fit_cache"]) == ("bf16", "avx512", True)
    assert values["bandwidth_share"] == pytest.approx(10_000_000 / 0.012 / 2e9, abs=1e-4)
    assert CostCurve.from_json(values["curve"]) == Samples(SECONDS).curve()
    point = next(p for p in values["points"] if (p["rows"], p["batch"]) == (16, 1))
    assert (point["lowest_ms"], point["ms"], point["highest_ms"]) == (13.0, 18.0, 22.0)
    assert (point["lowest_ratio"], point["over_first"], point["highest_ratio"]) == (1.1, 1.3, 1.5)  # within rounds


def test_the_view_says_where_the_limit_is(found):
    shown = view(json.loads(json.dumps(found)))
    assert not any("\n" in each.text for each in shown if isinstance(each, Note))
    said = spoken(shown)
    assert "batch 4, context 8" in said
    assert "they fit" in said
    assert "one row reaches 42%" in said
    assert "1.30 (1.10..1.50)" in said


@pytest.mark.parametrize(
    ("speed", "share", "said"),
    [
        (1e9, 0.8333, "one row reaches 83% of that speed"),
        (0.5e9, 1.0, "one row reads 0.833 GB/s, faster than the probe did: that is taken for the bandwidth"),
        (10e9, 0.0833, "one row reaches 8% of that speed"),
    ],
)
def test_251_a_forward_that_reads_faster_than_the_probe_is_the_bandwidth(speed, share, said):
    subject = Subject(toy(), "torch", "bf16", {}, "bf16", "avx2", 2, 9_000_000, 125_000)
    bandwidth = Bandwidth(subject.weight_bytes, lambda nbytes, seconds: speed, cache_bytes=4 << 20)
    bandwidth.measure()
    found = figures(subject, Grid((1, 16), (1, 4), (8,), 3), Samples(SECONDS), bandwidth)
    assert (found["bandwidth_share"], found["row_gb_s"]) == (share, 0.833)
    text = spoken(view(json.loads(json.dumps(found))))
    assert said in text
    assert "of that speed" not in text or share < 1


def test_the_chart_has_a_line_for_each_batch_and_context(found):
    (chart,) = [shown for shown in view(found) if isinstance(shown, Chart)]
    assert chart.log_x
    first = chart.series[0]
    assert (first.name, first.xs, first.ys) == ("batch 1, context 8", (1, 16), (12.0, 18.0))
    assert (first.lows, first.highs) == ((10.0, 13.0), (20.0, 22.0))


def test_rounds_that_were_kept_are_not_measured_again():
    target, grid = Watched(toy()), Grid((1, 3), contexts=(5,), repeats=3)
    kept = {}

    def keep(key, times):
        if key not in kept:
            kept[key] = times()
        return kept[key]

    first = measure(target, grid, keep=keep)
    del kept["round/2"]
    target.scored.clear()
    again = measure(target, grid, keep=keep)
    assert len(target.scored) == len(grid.points) * 3  # to warm up, and one round
    for point in grid.points:
        assert [first.seconds[point][i] == again.seconds[point][i] for i in (0, 2)] == [True, True]
    assert [row["round"] for row in again.to_json()] == [1, 2, 3] * 2


def test_no_single_row_no_share():
    subject = Subject(toy(), "torch", "bf16", {}, "bf16", "avx512", 2, 9_000_000, 125_000)
    bandwidth = Bandwidth(1, lambda nbytes, seconds: 2e9, cache_bytes=None)
    bandwidth.measure()
    samples = Samples({Point(4, 1, 8): [0.1]})
    grid = Grid((4,), contexts=(8,), repeats=1)
    found = figures(subject, grid, samples, bandwidth)
    assert found["bandwidth_share"] is None
    assert "not known" in spoken(view(found))
