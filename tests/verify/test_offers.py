from __future__ import annotations

import pytest
import torch

from forerun.core.draft import Tree
from forerun.core.errors import BrokenInvariant
from forerun.verify.offers import drafted, odds, offers, residual, reweighed, without


def row(*values):
    return torch.tensor(values, dtype=torch.float64)


def listed(children, tokens, p, q, law):
    return [(child, chance, left.tolist()) for child, chance, left in offers(children, tokens, p, q, law)]


def test_chosen_children_take_their_token_from_the_row():
    first, second = listed([1, 2], (9, 0, 1), row(0.5, 0.3, 0.2), None, "chosen")
    assert first == (1, 0.5, pytest.approx([0, 0.6, 0.4]))
    assert second == (2, pytest.approx(0.6), pytest.approx([0, 0, 1]))


def test_sampled_children_take_the_whole_row_each_time():
    first, second = listed([1, 2], (9, 0, 0), row(0.4, 0.6), row(0.5, 0.5), "sampled")
    assert first == (1, pytest.approx(0.8), pytest.approx([0, 1]))
    assert second == (2, 0.0, pytest.approx([0, 1]))


def test_distinct_children_leave_the_drafters_row():
    first, second = listed([1, 2], (9, 0, 1), row(0.2, 0.5, 0.3), row(0.5, 0.25, 0.25), "distinct")
    assert first == (1, pytest.approx(0.4), pytest.approx([0, 0.25 / 0.3, 0.05 / 0.3]))
    assert second == (2, 1.0, pytest.approx([0, 1, 0]))


def test_equal_rows_are_accepted_and_leave_the_row_as_it_is():
    p = row(0.5, 0.5)
    assert listed([1], (9, 1), p, p.clone(), "sampled") == [(1, 1.0, [0.5, 0.5])]
    assert residual(p, p)[1] == 0.0
    assert reweighed(0.0, 1.0) == 1.0


def test_a_repeated_chosen_child_has_no_second_chance():
    *_, last = listed([1, 2], (9, 0, 0), row(0.5, 0.5), None, "chosen")
    assert last == (2, 0.0, [0.0, 1.0])


def test_the_last_possible_token_leaves_zeros_in_the_drafters_row():
    assert without(row(0.0, 1.0), 1).tolist() == [0.0, 0.0]


def test_a_token_that_its_row_cannot_have_given_is_a_fault():
    with pytest.raises(BrokenInvariant, match=r"token 1 has probability 0\.0"):
        odds(row(0.5, 0.5), row(1.0, 0.0), 1)
    with pytest.raises(BrokenInvariant, match="repeat"):
        listed([1, 2], (9, 0, 0), row(0.2, 0.8), row(0.5, 0.5), "distinct")
    with pytest.raises(BrokenInvariant, match="not a distribution"):
        odds(row(float("nan"), 0.5), row(0.5, 0.5), 0)


def test_draft_rows_are_checked():
    p = row(0.5, 0.5)
    with pytest.raises(BrokenInvariant, match="node 0 has none"):
        drafted(Tree.chain(0, [1], "sampled"), 0, p)
    with pytest.raises(BrokenInvariant, match="shape"):
        drafted(Tree.chain(0, [1], "sampled", {0: row(0.2, 0.3, 0.5)}), 0, p)
    with pytest.raises(BrokenInvariant, match="bfloat16"):
        drafted(Tree.chain(0, [1], "sampled", {0: row(0.5, 0.5).bfloat16()}), 0, p)
    assert drafted(Tree.chain(0, [1], "sampled", {0: row(0.5, 0.5).float()}), 0, p).dtype == torch.float64
