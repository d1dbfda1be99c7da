from __future__ import annotations

import pytest

from forerun.core.errors import SpecError
from forerun.verify import VERIFIERS, verifier


def test_every_verifier_says_what_it_is():
    for name, made in VERIFIERS.items():
        verify = verifier(name)
        assert isinstance(verify, made)
        assert verify.name == name
        assert verify.laws
        assert verify.lossless is (name != "typical")
        assert verify.chains_only is (name in ("token", "block"))
        assert verify.greedy_only is (name == "greedy")


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(SpecError, match="did you mean 'block'"):
        verifier("blok")
