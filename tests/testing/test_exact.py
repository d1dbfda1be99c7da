from __future__ import annotations

import pytest
import torch

from forerun.core.errors import BrokenInvariant
from forerun.core.noise import accept_slot, target_slot
from forerun.testing.exact import outcomes, table_draft, widths
from forerun.testing.tables import fixed_table, random_table


def weights(*values):
    return torch.tensor(values)


def test_every_answer_with_its_probability():
    def run(noise):
        if noise.accept(0, accept_slot(0, 1), 0.25):
            return "accepted"
        return noise.pick(0, target_slot(1), weights(1.0, 0.0, 3.0))

    assert outcomes(run) == {"accepted": 0.25, 0: 0.75 * 0.25, 2: 0.75 * 0.75}


def test_nothing_asked_is_certain():
    assert outcomes(lambda noise: 7) == {7: 1.0}


def test_chances_are_clipped_and_what_cannot_be_is_not_tried():
    runs = []

    def run(noise):
        runs.append(None)
        return noise.accept(0, (1,), 1.5), noise.accept(0, (2,), -0.5), noise.accept(1, (1,), 0.0)

    assert outcomes(run) == {(True, False, False): 1.0}
    assert len(runs) == 1


def test_questions_may_depend_on_answers():
    def run(noise):
        heads = 0
        while heads < 3 and noise.accept(0, (heads,), 0.5):
            heads += 1
        return heads

    assert outcomes(run) == {0: 0.5, 1: 0.25, 2: 0.125, 3: 0.125}


def test_equal_results_are_added_up():
    assert outcomes(lambda noise: noise.pick(0, (0,), weights(1, 1, 1, 1)) % 2) == {0: 0.5, 1: 0.5}


def test_24_one_key_asked_twice_is_caught():
    def run(noise):
        return [noise.pick(0, target_slot(5), weights(1.0, 1.0)) for _ in range(2)]

    with pytest.raises(BrokenInvariant, match=r"asked slot .* twice"):
        outcomes(run)


def test_24_sequences_have_keys_of_their_own():
    law = outcomes(lambda noise: tuple(noise.pick(b, target_slot(5), weights(1.0, 1.0)) for b in range(2)))
    assert law == {(0, 0): 0.25, (0, 1): 0.25, (1, 0): 0.25, (1, 1): 0.25}


@pytest.mark.parametrize(
    "bad", [weights(0.0, 0.0), weights(float("nan"), 1.0), weights(-1.0, 2.0), weights(float("inf"))]
)
def test_weights_that_are_no_probabilities(bad):
    with pytest.raises(BrokenInvariant, match="asked with weights"):
        outcomes(lambda noise: noise.pick(0, (0,), bad))


def test_a_chance_that_is_none():
    with pytest.raises(BrokenInvariant, match="chance nan"):
        outcomes(lambda noise: noise.accept(0, (0,), float("nan")))


def test_a_run_with_chance_of_its_own_is_caught():
    calls = []

    def run(noise):
        calls.append(None)
        return noise.accept(0, (len(calls),), 0.5), noise.accept(0, (99,), 0.5)

    with pytest.raises(BrokenInvariant, match="depends on more than"):
        outcomes(run)


def test_a_run_that_stops_asking_is_caught():
    calls = []

    def run(noise):
        calls.append(None)
        return [noise.accept(0, (n,), 0.5) for n in range(3 if len(calls) == 1 else 1)] and 0

    with pytest.raises(BrokenInvariant, match="asked less"):
        outcomes(run)


def test_shapes():
    assert widths() == ()
    assert widths(1, 1) == (((),),)
    assert widths(2, 1) == (((),), ((),))


def drafts(table, shape, law, stops=frozenset()):
    return outcomes(lambda noise: table_draft(noise, (5, 0), table, shape, law, stops=stops).tokens)


def test_sampled_children_are_independent():
    law = drafts(fixed_table([0.25, 0.75]), widths(2), "sampled")
    assert law == {(0, 0, 0): 1 / 16, (0, 0, 1): 3 / 16, (0, 1, 0): 3 / 16, (0, 1, 1): 9 / 16}


def test_distinct_children_are_drawn_without_replacement_as_far_as_there_are_any():
    law = drafts(fixed_table([0.5, 0.25, 0.25, 0.0]), widths(2), "distinct")
    assert law[0, 0, 1] == pytest.approx(0.25)
    assert law[0, 1, 0] == pytest.approx(0.25 * 2 / 3)
    assert {len(tokens) for tokens in drafts(fixed_table([0.5, 0.5, 0.0]), widths(3), "distinct")} == {3}


def test_chosen_children_are_the_likeliest():
    assert drafts(fixed_table([0.2, 0.5, 0.3]), widths(2, 1), "chosen") == {(0, 1, 2, 1, 1): 1.0}


def test_a_draft_is_a_tree_with_its_rows():
    table = random_table(3, 1)
    trees = []
    outcomes(
        lambda noise: trees.append(table_draft(noise, (5, 0), table, ((((),), ())), "distinct", stops=frozenset({1})))
    )
    for tree in trees:
        tree.check()
        for node, row in tree.q.items():
            assert node == 0 or tree.tokens[node] != 1
            assert torch.equal(row, table((5, 0, *(tree.tokens[n] for n in tree.path(node)))))
