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
    inverse_cdf,
    target_slot,
    uniform,
)


def test_a_draw_is_a_function_of_seed_and_slot():
    assert uniform(7, target_slot(3)) == uniform(7, target_slot(3))
    values = {uniform(seed, slot) for seed in range(3) for slot in ((0, 1), (0, 2), (1, 0), (0, 1, 0), (1, 1, 2, 0))}
    assert len(values) == 15


def test_slots_of_different_purposes_never_meet():
    slots = [target_slot(5), draft_slot(5, 0), draft_slot(5, 0, 1), accept_slot(5, 0), accept_slot(5, 1)]
    assert len(set(slots)) == len(slots)


def test_uniforms_are_uniform_and_neighbours_independent():
    us = [uniform(123, target_slot(i)) for i in range(20_000)]
    assert abs(statistics.fmean(us) - 0.5) < 0.01
    assert abs(statistics.pvariance(us) - 1 / 12) < 0.003
    assert abs(statistics.correlation(us[:-1], us[1:])) < 0.03
    others = [uniform(124, target_slot(i)) for i in range(20_000)]
    assert abs(statistics.correlation(us, others)) < 0.03


def test_tokens_of_one_step_do_not_share_their_draw():
    """Failure case 24."""
    noise = SeededNoise([3])
    weights = torch.ones(1000)
    ids = [noise.pick(0, target_slot(i), weights) for i in range(4000)]
    assert abs(statistics.correlation(ids[:-1], ids[1:])) < 0.06
    assert sum(a == b for a, b in itertools.pairwise(ids)) / 3999 < 0.003


@pytest.mark.parametrize("u", [0.0, 0.3, 0.5, 0.999999999999, 1.0])
def test_a_weight_of_zero_is_never_drawn(u):
    weights = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    assert inverse_cdf(weights, u) in (1, 3)


def test_weights_need_not_sum_to_one():
    assert inverse_cdf(torch.tensor([1.0, 3.0]), 0.2) == 0
    assert inverse_cdf(torch.tensor([1.0, 3.0]), 0.26) == 1


@pytest.mark.parametrize("weights", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_no_mass_is_a_fault_not_a_token(weights):
    with pytest.raises(BrokenInvariant):
        inverse_cdf(torch.tensor(weights), 0.5)


def test_each_of_n_answers_has_its_own_seed_and_the_first_keeps_the_request_s():
    seeds = [child_seed(7, index) for index in range(50)]
    assert seeds[0] == 7
    assert len(set(seeds)) == 50


def test_negative_and_large_seeds_are_seeds():
    assert uniform(-1, (0, 0)) == uniform((1 << 64) - 1, (0, 0))
