"""Leviathan's formulas and the general one, against values worked out elsewhere and by simulation."""

import random

import pytest

from forerun.core.errors import SpecError
from forerun.lab.costs.formulas import (
    StepCost,
    advice,
    best_gamma,
    expected_by_position,
    expected_tokens,
    in_part,
    operations_factor,
    walltime_factor,
)


@pytest.mark.parametrize(
    ("alpha", "by_gamma"),
    [
        (0.8, {1: 1.8, 2: 2.44, 4: 3.36, 8: 4.33}),
        (0.3, {1: 1.3, 2: 1.39, 4: 1.43, 8: 1.43}),
        (1.0, {4: 5}),
        (0, {4: 1}),
    ],
)
def test_expected_tokens_of_the_paper(alpha, by_gamma):
    assert {gamma: round(expected_tokens(alpha, gamma), 2) for gamma in by_gamma} == by_gamma
    assert expected_by_position([alpha] * 4) == pytest.approx(expected_tokens(alpha, 4))


def test_expected_tokens_of_rates_that_differ_agree_with_a_simulation():
    rates, rng, total = (0.9, 0.5, 0.8), random.Random(1), 0
    for _ in range(20_000):
        total += 1
        for rate in rates:
            if rng.random() >= rate:
                break
            total += 1
    assert expected_by_position(rates) == pytest.approx(total / 20_000, rel=0.02)
    assert expected_by_position(()) == 1.0


def test_drafting_helps_if_alpha_is_above_the_draft_cost():
    free = lambda rows: 1.0
    for alpha, draft in ((0.5, 0.4), (0.5, 0.49), (0.9, 0.89)):
        assert best_gamma(alpha, draft, free, range(1, 10)) > 0
        assert walltime_factor(alpha, 1, draft) == pytest.approx((1 + alpha) / (1 + draft))
    for alpha, draft in ((0.5, 0.5), (0.5, 0.6), (0.0, 0.1)):
        assert best_gamma(alpha, draft, free, range(1, 10)) == 0


def test_the_best_depth_heeds_what_verifying_costs():
    assert best_gamma(0.8, 0.0, lambda rows: 1.0, (1, 2, 4, 8)) == 8
    assert best_gamma(0.8, 0.0, lambda rows: 1.0 + 0.5 * (rows - 1), (1, 2, 4, 8)) == 2
    assert best_gamma(0.8, 0.0, {2: 1.0, 3: 9.0}.__getitem__, (1, 2)) == 1
    assert best_gamma(0.8, 0.0, lambda rows: 1.0, ()) == 0


def test_operations():
    assert operations_factor(1.0, 4, 0.0) == pytest.approx(1.0)
    assert operations_factor(0.0, 4, 0.1) == pytest.approx(5.4)
    assert operations_factor(0.8, 4, 0.1) == pytest.approx(0.2 * 5.4 / (1 - 0.8**5))


@pytest.mark.parametrize(("alpha", "gamma", "hint"), [(1.1, 2, "alpha"), (-0.1, 2, "alpha"), (0.5, -1, "gamma")])
def test_what_is_no_chance_or_no_length_is_refused(alpha, gamma, hint):
    with pytest.raises(SpecError, match=hint):
        expected_tokens(alpha, gamma)


def cost(gamma, draft, verify=1.0):
    return StepCost(plain=1.0, verify=verify, draft=gamma * draft)


def test_case_108_a_draft_that_is_too_slow_for_the_target():
    """ggml-org/llama.cpp#3649: 2x expected, none got."""
    gammas = (1, 2, 4, 8)
    fast = [round(walltime_factor(0.8, gamma, 0.1), 3) for gamma in gammas]
    slow = [round(walltime_factor(0.8, gamma, 0.6), 3) for gamma in gammas]
    assert fast == [1.636, 2.033, 2.401, 2.405]
    assert slow == [1.125, 1.109, 0.989, 0.746]
    assert round(walltime_factor(0.8, 4, 0.1, 4.0), 3) == 0.764
    assert best_gamma(0.8, 0.1, lambda rows: 1.0, gammas) == 8
    assert best_gamma(0.8, 0.6, lambda rows: 1.0, gammas) == 1
    assert best_gamma(0.8, 0.1, lambda rows: 4.0, [4]) == 0
    tau = expected_tokens(0.8, 8)
    assert "draft too slow" in advice("slower", 0.746, tau, cost(8, 0.6))
    assert "verifying too dear" in advice("slower", 0.764, expected_tokens(0.8, 4), cost(4, 0.1, 4.0))


def test_case_152_acceptance_is_not_taken_for_speed():
    """hemingkx/Spec-Bench#29: more tokens accepted, less speed."""
    taus = {name: expected_tokens(alpha, 4) for name, alpha in (("big", 0.9), ("small", 0.6))}
    costs = {"big": cost(4, 0.8), "small": cost(4, 0.05)}
    speeds = {name: costs[name].speedup(taus[name]) for name in taus}
    assert {name: round(speed, 3) for name, speed in speeds.items()} == {"big": 0.975, "small": 1.921}
    assert taus["big"] > taus["small"]
    assert max(speeds, key=speeds.get) == "small"
    assert costs["big"].draft_share == pytest.approx(3.2 / 4.2)
    assert "draft too slow" in advice("slower", speeds["big"], taus["big"], costs["big"])
    assert advice("faster", speeds["small"], taus["small"], costs["small"]).startswith("pays: 1.92")


def test_the_general_formula_counts_the_rest_and_finds_the_obstacle():
    whole = StepCost(plain=4.0, verify=5.0, draft=2.0, rest=1.0)
    assert (whole.total, whole.speedup(3.0)) == (8.0, 1.5)
    said = StepCost(4.0, 5.0, 2.0, 1.0).obstacle(1.1)
    assert said == "too few guesses stand: 1.10 tokens in a step that costs 2.00 plain ones, 25% of it drafting"
    assert "machinery" in StepCost(4.0, 4.0, 0.1, 9.0).obstacle(2.0)
    said = advice("no difference", 1.01, 2.0, StepCost(4.0, 4.0, 5.0))
    assert said.startswith("no gain beyond the noise (1.01")
    assert "too few prompts" in advice("too few prompts", 1.2, 2.0, whole)


def test_steps_without_a_draft_are_plain_ones():
    assert in_part(4.0, 1.0) == 4.0
    assert in_part(4.0, 0.25) == pytest.approx(0.25 * 4.0 + 0.75)
    assert walltime_factor(0.8, 4, 0.1, 1.5, share=1.0) == walltime_factor(0.8, 4, 0.1, 1.5)
    assert walltime_factor(0.8, 4, 0.0, 1.5, share=0.0) == 1.0
    half = (0.5 * expected_tokens(0.8, 4) + 0.5) / (4 * 0.05 + 0.5 * 1.5 + 0.5)
    assert walltime_factor(0.8, 4, 0.05, 1.5, share=0.5) == pytest.approx(half)
    free = lambda rows: 1.0
    assert (best_gamma(0.8, 0.05, free, (1, 8)), best_gamma(0.8, 0.05, free, (1, 8), share=0.05)) == (8, 0)
