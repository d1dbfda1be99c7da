from __future__ import annotations

import pytest
import torch

from forerun.core.errors import SpecError
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.drafters.first_of import FirstOf
from forerun.drafters.model import ModelDrafter, ModelOptions
from forerun.drafters.ngram import NgramDrafter
from forerun.drafters.none import NoDrafter
from forerun.testing.conformance import check_drafter, toy_law
from forerun.testing.noisy import NoisyDrafter
from forerun.testing.scripted import ScriptedDrafter
from forerun.testing.toy import ToyTarget, table_law


@pytest.mark.parametrize("law", ["chosen", "sampled", "distinct"])
def test_conformance(law):
    own = ToyTarget(table_law(12, seed=5, order=1), 12)
    tally = check_drafter(
        lambda: FirstOf([NgramDrafter(), ModelDrafter(own, ModelOptions(law=law)), NoDrafter()]),
        holds=lambda: len(own._held),
    )
    assert 0 < tally.accepted < tally.drafted


def test_each_sequence_hears_the_first_that_speaks_for_it():
    first = ScriptedDrafter(lambda seq: [1] if seq.id == 0 else [], "first")
    second = ScriptedDrafter(lambda seq: [2, 2] if seq.id < 2 else [], "second")
    both = FirstOf([first, second])
    seqs = [Seq(i, [9], SamplingParams(), 64) for i in range(3)]
    draft = both.draft(seqs, Plan(4), SeededNoise([0] * 3))
    assert [tree.tokens for tree in draft.trees] == [(9, 1), (9, 2, 2), (9,)]
    assert both.name == "first_of(first, second)"
    assert len(second.proposed) == 2, "it was not asked about the first sequence"


def test_chance_is_each_sequence_s_own():
    """The second drafter draws for sequence 1 as if it were asked for the whole batch."""
    ask = SamplingParams(temperature=1.0)
    seqs = [Seq(i, [i], ask, 64) for i in range(2)]
    noise = SeededNoise([3, 4])
    drawn = NoisyDrafter(toy_law(), kind="sampled")
    whole = drawn.draft(seqs, Plan(5), noise).trees[1]
    cascade = FirstOf([ScriptedDrafter(lambda seq: [1] if seq.id == 0 else []), drawn])
    assert cascade.draft(seqs, Plan(5), noise).trees[1].tokens == whole.tokens


def test_laws_and_taps_are_united_and_each_reads_its_own():
    class Tapping(ScriptedDrafter):
        def __init__(self, taps):
            super().__init__(lambda seq: [])
            self.taps, self.seen = taps, []

        def read(self, rows):
            self.seen.append(rows.hidden.tolist())

    one, two, deaf = Tapping((5, 1)), Tapping((3,)), NoisyDrafter(toy_law(), kind="distinct")
    both = FirstOf([one, deaf, two])
    assert both.taps == (1, 3, 5)
    assert both.laws == {"chosen", "distinct"}
    hidden = torch.tensor([[10.0, 11.0, 30.0, 31.0, 50.0, 51.0]])
    both.read(Rows([], torch.zeros(0, 4), 4, hidden))
    assert one.seen == [[[50.0, 51.0, 10.0, 11.0]]]
    assert two.seen == [[[30.0, 31.0]]]


def test_of_nothing():
    with pytest.raises(SpecError, match="at least one"):
        FirstOf([])
