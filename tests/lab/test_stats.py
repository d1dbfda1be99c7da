"""Intervals that cover, verdicts that keep to the noise floor, Holm by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.lab.stats import FEWEST, Interval, calm, holm, ratio, total_ratio, verdict


def test_the_value_is_the_median_of_the_ratios_and_the_ratio_of_the_sums():
    pairs = [(2.0, 1.0), (9.0, 3.0), (4.0, 4.0)]
    assert ratio(pairs).value == 2.0
    assert total_ratio(pairs).value == 15 / 8
    assert ratio(pairs).of == 3


def test_pairs_stay_together():
    """Prompts differ a hundredfold, every ratio is 2: resampling the arms apart would give a huge interval."""
    pairs = [(2.0 * 10**k, 1.0 * 10**k) for k in range(-3, 4)]
    found = ratio(pairs)
    assert (found.low, found.high) == (pytest.approx(2.0), pytest.approx(2.0))
    assert total_ratio(pairs).low == pytest.approx(2.0)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    hits = 0
    for i in range(200):
        truth = rng.lognormal(np.log(1.5), 0.3, size=24)
        found = ratio([(float(t), 1.0) for t in truth], resamples=1000, seed=i)
        hits += found.low <= 1.5 <= found.high
    assert 0.88 <= hits / 200 <= 0.995


def test_too_few_pairs_have_no_interval_and_no_pairs_no_figure():
    few = [(float(i), 2.0) for i in range(1, FEWEST + 1)]
    for figure in (ratio, total_ratio):
        found = figure(few[:-1])
        assert (found.low, found.high, found.of) == (None, None, FEWEST - 1)
        assert figure(few).low < figure(few).value < figure(few).high
    assert ratio([(3.0, 2.0), (3.0, 2.0)]).value == 1.5
    with pytest.raises(ValueError, match="nothing was measured"):
        ratio([])


def test_the_same_seed_gives_the_same_interval():
    pairs = [(float(i**1.5 + 1), 2.0 + 0.1 * i) for i in range(12)]
    assert ratio(pairs) == ratio(pairs)
    assert total_ratio(pairs, seed=1) != total_ratio(pairs, seed=2)
    assert ratio(pairs).to_json()["value"] == pytest.approx(ratio(pairs).value)


def test_fewer_pairs_could_not_reach_what_an_interval_promises():
    """The span of n values misses the median only where all of them lie on one side of it."""
    assert 1 - 2 ** (1 - FEWEST) >= 0.95 > 1 - 2 ** (2 - FEWEST)
    rng = np.random.default_rng(3)
    hits = 0
    for i in range(400):
        found = ratio([(float(value), 1.0) for value in rng.normal(5.0, 1.0, size=FEWEST)], resamples=500, seed=i)
        hits += found.low <= 5.0 <= found.high
    assert hits / 400 >= 0.8, "six are needed; they are not many"


NOISE = Interval(1.01, 0.98, 1.03, 12)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1.04, 1.5, "faster"),
        (1.02, 1.5, "no difference"),  # above one, but not above what the machine does to equal arms
        (0.99, 1.2, "no difference"),
        (0.5, 0.97, "slower"),
        (0.5, 0.985, "no difference"),
    ],
)
def test_a_difference_inside_the_noise_is_none(low, high, said):
    assert verdict(Interval((low + high) / 2, low, high, 12), NOISE) == said


def test_nothing_is_said_of_too_few_prompts():
    assert verdict(Interval(3.0, None, None, 2), NOISE) == "too few prompts"
    assert verdict(Interval(3.0, 2.0, 4.0, 9), Interval(1.0, None, None, 2)) == "too few prompts"


def test_a_machine_is_calm_where_equal_arms_agree():
    assert calm(NOISE)
    assert not calm(Interval(0.96, 0.9, 1.0, 9))
    assert not calm(Interval(1.031, 0.9, 1.1, 9))


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(pvalues):
    adjusted = holm(pvalues)
    assert all(a >= p - 1e-12 for a, p in zip(adjusted, pvalues, strict=True))
    ranked = sorted(range(len(pvalues)), key=lambda i: pvalues[i])
    assert all(adjusted[a] <= adjusted[b] for a, b in itertools.pairwise(ranked))
