from __future__ import annotations

from dataclasses import dataclass

import pytest

from forerun.core.errors import SpecError
from forerun.drafters.ranges import number, ordered, whole


@dataclass
class SomeOptions:
    a: object = 1
    b: object = 2


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 0, 10])
def test_whole_numbers_only(value):
    with pytest.raises(SpecError, match="some a must be a whole number from 1 to 9"):
        whole(SomeOptions(a=value), "a", 1, 9)


@pytest.mark.parametrize("value", [True, float("nan"), float("inf"), "1", -0.5])
def test_finite_numbers_only(value):
    with pytest.raises(SpecError, match="some a must be a number from 0 to 9"):
        number(SomeOptions(a=value), "a", 0.0, 9.0)


def test_what_is_meant_passes():
    assert whole(SomeOptions(), "a", 1, 9) == 1
    assert number(SomeOptions(), "b", 0.0, 9.0) == 2.0
    ordered(SomeOptions(), "a", "b")
    with pytest.raises(SpecError, match="some b \\(2\\) exceeds a \\(1\\)"):
        ordered(SomeOptions(), "b", "a")
