import pytest

from forerun.core.errors import SpecError
from forerun.core.plan import Plan


@pytest.mark.parametrize("depth", [-1, 1.9, True, "4", 10**9])
def test_a_depth_that_cannot_be_meant_is_refused(depth):
    """Failure case 138."""
    with pytest.raises(SpecError, match="depth"):
        Plan(depth)


def test_depth_zero_is_off():
    assert not Plan(0)
    assert not Plan.none()
    assert Plan(1)


def test_the_most_nodes_respect_room_and_budget():
    assert Plan(8).most(room=3) == 3
    assert Plan(8, nodes=2).most(room=5) == 2
    assert Plan(4, nodes=16, width=3).most(room=5) == 16
    assert Plan(4, nodes=16, width=3).most(room=0) == 0
