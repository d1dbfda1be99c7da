"""Comparing both ways: neither arm may help the other."""

import pytest

import forerun
from forerun.cli.compare import compare


@pytest.mark.parametrize("drafter", ["suffix", "first_of:of=prediction+suffix"])
def test_a_drafter_that_remembers_does_not_know_the_other_arm_s_answer(models, drafter):
    params = {"max_tokens": 24, "ignore_eos": True}
    with forerun.load(str(models["folder"]), drafter, reuse=False) as engine:
        outcome = compare(engine, [engine.words.encode("The sea was", bos=False)] * 2, params)
    with forerun.load(str(models["folder"]), drafter) as fresh:
        alone = fresh.generate("The sea was", **params).stats
        again = fresh.generate("The sea was", **params).stats
    assert [result.stats.accepted for result in outcome.drafted] == [alone.accepted] * 2
    assert again.accepted > alone.accepted  # it does remember where nobody compares
