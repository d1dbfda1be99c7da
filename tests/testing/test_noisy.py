from __future__ import annotations

import pytest

from forerun.core.errors import SpecError
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.seq import Seq
from forerun.testing.conformance import check_drafter, toy_law
from forerun.testing.gate import measure
from forerun.testing.noisy import NoisyDrafter
from forerun.testing.tables import random_table
from forerun.testing.toy import table_law
from forerun.verify.reference import Reference

LAW = table_law(16, order=2)
NOISE = SeededNoise([1, 2, 3])


def share(wrong: float) -> float:
    """Share of drafted first tokens that are what the target says."""
    drafter, right = NoisyDrafter(LAW, wrong), 0
    for length in range(1, 401):
        seq = Seq(0, [i * 7 % 16 for i in range(length)], SamplingParams(), 4096)
        token = drafter.draft([seq], Plan(1), NOISE).trees[0].tokens[1]
        right += token == int(LAW(seq.tokens).argmax())
    return right / 400


def test_it_is_wrong_as_often_as_it_was_told():
    assert share(0.0) == 1.0
    assert share(1.0) == 0.0
    assert 0.5 < share(0.4) < 0.7


@pytest.mark.parametrize("kind", ["chosen", "sampled", "distinct"])
def test_conformance(kind):
    tally = check_drafter(lambda: NoisyDrafter(toy_law(), kind=kind))
    assert 0 < tally.accepted < tally.drafted


@pytest.mark.parametrize("kind", ["sampled", "distinct"])
def test_its_q_is_what_it_draws_from(kind):
    drafter = NoisyDrafter(table_law(3, seed=4, zeros=0.3), wrong=0.5, kind=kind)
    seq = Seq(0, [0], SamplingParams(temperature=1.0), 64)
    drawn = measure(
        Reference(), random_table(3, seed=1), lambda noise: drafter.draft([seq], Plan(2, 4, 2), noise).trees[0]
    )
    assert drawn.deviation < 1e-12
    assert drawn.accepted > 0.2


def test_guesses_repeat_in_any_batch():
    seqs = [Seq(i, range(i + 1), SamplingParams(), 64) for i in range(3)]
    together = NoisyDrafter(LAW).draft(seqs, Plan(4, width=3), NOISE).trees
    alone = [NoisyDrafter(LAW).draft([seq], Plan(4, width=3), NOISE).trees[0] for seq in seqs]
    assert list(together) == alone
    assert not together[2].is_chain


def test_what_cannot_be_meant():
    with pytest.raises(SpecError, match="wrong"):
        NoisyDrafter(LAW, wrong=1.5)
    with pytest.raises(SpecError, match="law"):
        NoisyDrafter(LAW, kind="drawn")
