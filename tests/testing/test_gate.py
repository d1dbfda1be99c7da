from __future__ import annotations

import pytest

from forerun.core.draft import Tree, Verdict
from forerun.core.noise import target_slot
from forerun.core.params import SamplingParams
from forerun.testing.gate import PlainDecoding, measure
from forerun.testing.tables import fixed_table, random_table, script_table
from forerun.verify import Match


def believe(draft, rows, noise):
    """Accepts all of a chain, as no verifier should."""
    last = len(draft.trees[0]) - 1
    bonus = noise.pick(0, target_slot(rows.position(0, last)), rows.probs(0, last))
    return Verdict((tuple(range(1, last + 1)),), (bonus,))


def test_it_measures_the_deviation_of_a_wrong_verifier():
    found = measure(believe, fixed_table([0.25, 0.75]), lambda noise: Tree.chain(0, [0]))
    assert found.first == (1.0, 0.0)
    assert found.accepted == 1.0
    assert found.deviation == pytest.approx(0.75 * 0.75)


def test_it_measures_none_of_a_right_one():
    found = measure(Match(), fixed_table([0.25, 0.75]), lambda noise: Tree.chain(0, [0]))
    assert found.deviation < 1e-15
    assert found.emitted == pytest.approx({(0, 0): 1 / 16, (0, 1): 3 / 16, (1,): 0.75})


def test_plain_decoding_is_the_processed_target():
    plain = PlainDecoding(fixed_table([0.5, 0.3, 0.2]), SamplingParams(temperature=1.0, top_k=2))
    assert plain.row((1, 1)) == pytest.approx([0.625, 0.375, 0.0])
    law = plain.extended({(): 1.0}, 2)
    assert law[0, 1] == pytest.approx(0.625 * 0.375)
    assert sum(law.values()) == pytest.approx(1.0)


def test_tables_are_distributions_that_stay():
    table = random_table(4, 1, zeros=0.5)
    again = random_table(4, 1, zeros=0.5)
    for context in ((0,), (0, 1), (0, 1, 2)):
        assert float(table(context).sum()) == pytest.approx(1.0)
        assert table(context).tolist() == again(context).tolist()
    assert not random_table(4, 2, support=[1, 3])((0,))[::2].any()
    script = script_table([2, 1], 4)
    assert [int(script(tokens).argmax()) for tokens in ((0,), (0, 2), (0, 2, 1), (0, 3))] == [2, 1, 3, 3]
