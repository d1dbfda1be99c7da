"""Cost curves: exact round trips, and no point that was not measured."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.core.errors import LoadError, SpecError
from forerun.costs.curve import CostCurve, Point

sizes = st.integers(1, 1 << 20)
times = st.floats(0, 1e6, exclude_min=True, allow_subnormal=True)
curves = st.dictionaries(st.builds(Point, sizes, sizes, sizes), times).map(CostCurve)


@given(curves)
def test_a_curve_comes_back_bit_for_bit(curve):
    again = CostCurve.from_json(json.loads(json.dumps(curve.to_json(), allow_nan=False)))
    assert again == curve
    assert list(again.seconds) == list(curve.seconds) == sorted(curve.seconds)


def test_a_point_is_found_and_rows_are_in_order():
    curve = CostCurve({Point(16, 1, 256): 0.02, Point(1, 1, 256): 0.01, Point(1, 2, 256): 0.015})
    assert curve.at(16, 1, 256) == 0.02
    assert list(curve.by_rows(1, 256).items()) == [(1, 0.01), (16, 0.02)]
    assert curve.by_rows(1, 4096) == {}


def test_a_point_that_was_not_measured_names_the_nearest():
    curve = CostCurve({Point(16, 1, 256): 0.02, Point(1, 1, 256): 0.01})
    with pytest.raises(SpecError, match=r"nearest: \(16, 1, 256\)"):
        curve.at(15, 1, 256)
    with pytest.raises(SpecError, match="nearest: none"):
        CostCurve({}).at(1)


def test_a_curve_cannot_be_changed():
    seconds = {Point(1, 1, 1): 0.5}
    curve = CostCurve(seconds)
    seconds[Point(1, 1, 1)] = 1.0
    assert curve.at(1) == 0.5
    with pytest.raises(TypeError):
        curve.seconds[Point(1, 1, 1)] = 1.0


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), "1", True])
def test_seconds_are_above_zero(seconds):
    with pytest.raises(SpecError, match="seconds"):
        CostCurve({Point(1, 1, 1): seconds})


@pytest.mark.parametrize(
    "point", [Point(0, 1, 1), Point(1, -1, 1), Point(1, 1, 1 << 26), Point(True, 1, 1), Point(1, 1.5, 1)]
)
def test_sizes_are_whole_and_above_zero(point):
    with pytest.raises(SpecError, match="whole numbers"):
        CostCurve({point: 1.0})


GOOD = {"rows": 1, "batch": 1, "context": 1, "seconds": 0.5}


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (None, "points"),
        ([], "points"),
        ({"points": {}}, "points"),
        ({"points": [1]}, "has rows"),
        ({"points": [{"rows": 1}]}, "has rows"),
        ({"points": [{**GOOD, "more": 1}]}, "has rows"),
        ({"points": [GOOD, GOOD]}, "twice"),
        ({"points": [{**GOOD, "rows": 1.0}]}, "whole numbers"),
        ({"points": [{**GOOD, "rows": True}]}, "whole numbers"),
        ({"points": [{**GOOD, "rows": 0}]}, "damaged"),
        ({"points": [{**GOOD, "seconds": None}]}, "damaged"),
        ({"points": [{**GOOD, "seconds": float("nan")}]}, "damaged"),
    ],
)
def test_what_is_no_curve_is_refused(value, hint):
    with pytest.raises(LoadError, match=hint):
        CostCurve.from_json(value)
