from __future__ import annotations

import math

import pytest
import torch

from forerun.core.draft import Tree
from forerun.core.errors import SpecError
from forerun.core.params import SamplingParams
from forerun.testing.exact import table_draft, widths
from forerun.testing.gate import measure
from forerun.testing.tables import fixed_table, random_table
from forerun.verify import Typical, verifier
from forerun.verify.typical import TypicalOptions


def test_it_says_that_it_is_lossy_and_it_is():
    drafter = fixed_table([0.1, 0.2, 0.7])
    found = measure(Typical(), fixed_table([0.6, 0.3, 0.1]), lambda noise: table_draft(noise, (0,), drafter, ((),)))
    assert Typical.lossless is False
    assert found.first == pytest.approx((0.1, 0.2, 0.7))
    assert found.deviation > 0.1
    assert found.accepted == pytest.approx(1.0)


def test_at_temperature_0_it_is_the_argmax_walk():
    drafter = random_table(3, 51)
    found = measure(
        Typical(),
        random_table(3, 52),
        lambda noise: table_draft(noise, (0,), drafter, widths(2, 2)),
        SamplingParams(temperature=0.0),
    )
    assert found.deviation < 1e-12


def test_the_bar_falls_with_entropy():
    assert Typical().bar(torch.tensor([1.0, 0.0])) == 0.09
    flat = torch.full((10,), 0.1, dtype=torch.float64)
    assert Typical().bar(flat) == pytest.approx(0.3 * math.exp(math.log(0.1 + 1e-5)))
    assert Typical(epsilon=0.5, delta=1.0).bar(torch.tensor([0.5, 0.5])) == pytest.approx(0.5, abs=1e-4)


def test_the_longest_path_that_passes_and_of_those_the_likeliest():
    target = fixed_table([0.5, 0.3, 0.15, 0.05])
    for parents, tokens, best in (
        ((-1, 0, 0, 2), (0, 0, 1, 2), (1, 2)),  # deeper beats likelier
        ((-1, 0, 0, 1, 2), (0, 1, 2, 1, 0), (1, 1)),  # .3 * .3 beats .15 * .5
        ((-1, 0, 1), (0, 3, 0), ()),  # below a refused node nothing stands
    ):
        tree = Tree(tokens, parents)
        found = measure(Typical(), target, lambda noise: tree)
        assert all(text[:-1] == best for text in found.emitted)
        assert found.accepted == pytest.approx(len(best))


def test_the_bonus_is_the_targets_own_draw():
    found = measure(Typical(), fixed_table([0.5, 0.5]), lambda noise: Tree.chain(0, [1]))
    assert found.emitted == {(1, 0): pytest.approx(0.5), (1, 1): pytest.approx(0.5)}


@pytest.mark.parametrize("options", [{"epsilon": 1.5}, {"delta": -0.1}])
def test_options_out_of_range(options):
    with pytest.raises(SpecError, match=f"{next(iter(options))} must be a number from 0 to 1"):
        Typical(**options)


def test_279_the_token_after_the_path_may_be_the_likeliest_as_in_medusa_s_code():
    """Whatever the temperature: of the row of the last node that stands, of the root's where none does."""
    target = fixed_table([0.15, 0.5, 0.3, 0.05])
    for tokens, parents, stands in (((0, 2, 2), (-1, 0, 1), (2, 2)), ((0, 3), (-1, 0), ()), ((0,), (-1,), ())):
        for temperature in (0.5, 1.0):
            tree, params = Tree(tokens, parents), SamplingParams(temperature=temperature, seed=1)
            found = measure(Typical(epsilon=0.06, bonus="argmax"), target, lambda noise, tree=tree: tree, params)
            assert found.emitted == {(*stands, 1): pytest.approx(1.0)}
    drawn = measure(Typical(), target, lambda noise: Tree((0,), (-1,)))
    assert len(drawn.emitted) == 4, "drawn if nobody says"


def test_279_the_option_stands_behind_the_name():
    assert verifier("typical:bonus=argmax,epsilon=0.2").options == TypicalOptions(0.2, 0.3, "argmax")
    assert verifier("typical").options.bonus == "draw"
    with pytest.raises(SpecError, match="bonus of typical acceptance"):
        verifier("typical:bonus=best")
    with pytest.raises(SpecError, match="typical option"):
        verifier("typical:bonuses=argmax")
    with pytest.raises(SpecError, match="auto takes no options"):
        verifier("auto:bonus=argmax")
