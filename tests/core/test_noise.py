import itertools
import statistics

import pytest
import torch

from forerun.core.errors import BrokenInvariant
from forerun.core.noise import (
    SeededNoise,
    accept_slot,
    child_seed,
    draft_slot,
    hashed,
    race,
    target_slot,
)


def test_a_draw_is_a_function_of_seed_and_slot():
    assert hashed(7, target_slot(3)) == hashed(7, target_slot(3))
    values = {hashed(seed, slot) for seed in range(3) for slot in ((0, 1), (0, 2), (1, 0), (0, 1, 0), (1, 1, 2, 0))}
    assert len(values) == 15


def test_slots_of_different_purposes_never_meet():
    slots = [target_slot(5), draft_slot(5, 0), draft_slot(5, 0, 1), accept_slot(5, 0), accept_slot(5, 1)]
    assert len(set(slots)) == len(slots)


def test_uniforms_are_uniform_and_neighbours_independent():
    us = [hashed(123, target_slot(i)) / 2**64 for i in range(20_000)]
    assert abs(statistics.fmean(us) - 0.5) < 0.01
    assert abs(statistics.pvariance(us) - 1 / 12) < 0.003
    assert abs(statistics.correlation(us[:-1], us[1:])) < 0.03
    others = [hashed(124, target_slot(i)) / 2**64 for i in range(20_000)]
    assert abs(statistics.correlation(us, others)) < 0.03


def test_tokens_of_one_step_do_not_share_their_draw():
    """Failure case 24."""
    noise = SeededNoise([3])
    weights = torch.ones(1000)
    ids = [noise.pick(0, target_slot(i), weights) for i in range(4000)]
    assert abs(statistics.correlation(ids[:-1], ids[1:])) < 0.06
    assert sum(a == b for a, b in itertools.pairwise(ids)) / 3999 < 0.003


def test_a_weight_of_zero_is_never_drawn():
    weights = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    assert {race(weights, hashed(1, (0, i))) for i in range(500)} == {1, 3}


@pytest.mark.parametrize("scale", [1e-6, 1.0, 7.0])
def test_draws_follow_the_weights_whatever_they_sum_to(scale):
    weights = scale * torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    counts = [0, 0, 0]
    for i in range(20_000):
        counts[race(weights, hashed(9, (0, i)))] += 1
    for count, p in zip(counts, (0.5, 0.3, 0.2), strict=True):
        assert abs(count / 20_000 - p) < 4 * (p * (1 - p) / 20_000) ** 0.5


def test_a_draw_belongs_to_the_token_not_to_its_place():
    """Leaving out tokens that did not win changes nothing: the same draw from a nucleus and from the whole row."""
    weights = torch.rand(64, dtype=torch.float64)
    for i in range(50):
        winner = race(weights, hashed(3, (0, i)))
        ids = torch.tensor(sorted({winner, *range(i % 7, 64, 5)}))
        assert int(ids[race(weights[ids], hashed(3, (0, i)), ids)]) == winner


def test_rounding_errors_seldom_change_a_draw():
    """A shift of 1e-5 in logits, as another row count may bring, over a vocabulary with a long tail."""
    torch.manual_seed(0)
    logits = torch.randn(20_000, dtype=torch.float64) * 3
    moved = logits + 1e-5 * torch.randn(20_000, dtype=torch.float64)
    weights, others = torch.softmax(logits, -1), torch.softmax(moved, -1)
    assert sum(race(weights, hashed(5, (0, i))) != race(others, hashed(5, (0, i))) for i in range(2000)) <= 1


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_no_mass_is_a_fault_not_a_token(weights):
    with pytest.raises(BrokenInvariant):
        race(torch.tensor(weights), 12345)


def test_draws_are_what_they_were():
    """A seed's text is a promise: these were drawn by the first version."""
    weights = torch.arange(1.0, 1001.0)
    ids = torch.arange(1000) * 7
    assert [race(weights, hashed(5, (0, i))) for i in range(6)] == [383, 345, 802, 921, 717, 841]
    assert [race(weights, hashed(5, (0, i)), ids) for i in range(6)] == [974, 743, 903, 622, 782, 955]


def test_each_of_n_answers_has_its_own_seed_and_the_first_keeps_the_request_s():
    seeds = [child_seed(7, index) for index in range(50)]
    assert seeds[0] == 7
    assert len(set(seeds)) == 50


def test_negative_and_large_seeds_are_seeds():
    assert hashed(-1, (0, 0)) == hashed((1 << 64) - 1, (0, 0))
