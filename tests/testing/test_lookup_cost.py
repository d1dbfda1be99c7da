from __future__ import annotations

from forerun.core.plan import Plan
from forerun.drafters.ngram import NgramDrafter
from forerun.testing.lookup_cost import seconds_per_draft


def test_it_measures():
    assert 0 < seconds_per_draft(NgramDrafter, 100, Plan(4), steps=5) < 1
