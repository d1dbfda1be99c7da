from __future__ import annotations

import pytest

from forerun.core.errors import SpecError
from forerun.drafters.skip import SkipDrafter, SkipOptions
from forerun.testing.conformance import check_drafter
from forerun.testing.toy import ToyTarget, table_law


def test_conformance_with_a_shallow_law():
    tally = check_drafter(lambda: SkipDrafter(ToyTarget(table_law(12, seed=5, order=1), 12), SkipOptions(layers=1)))
    assert 0 < tally.accepted < tally.drafted


def test_options():
    drafter = SkipDrafter(ToyTarget(table_law(4), 4), SkipOptions(law="distinct", chunk=7))
    assert drafter.name == "skip"
    assert drafter.laws == {"chosen", "distinct"}
    assert drafter.options.chunk == 7
    assert SkipDrafter(ToyTarget(table_law(4), 4), SkipOptions(level_cost=0.25)).options.level_cost == 0.25
    with pytest.raises(SpecError, match="law"):
        SkipOptions(law="x")
    for values in ({"layers": 0}, {"layers": True}, {"chunk": 0}, {"level_cost": -1}, {"level_cost": float("nan")}):
        with pytest.raises(SpecError, match=r"^skip "):
            SkipOptions(**values)
