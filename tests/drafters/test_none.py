from __future__ import annotations

from forerun.drafters.none import NoDrafter
from forerun.testing.conformance import check_drafter


def test_conformance():
    assert check_drafter(NoDrafter).drafted == 0
