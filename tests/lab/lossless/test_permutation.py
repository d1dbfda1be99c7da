"""The test of distributions: its arithmetic, its false alarms, and that it sees what is there."""

import math

import numpy as np
import pytest

from forerun.lab.lossless.permutation import distances, features, kolmogorov, pvalue, uniformity
from forerun.lab.lossless.sampled import toy_pvalues


def arm(rng, probs, answers=10, tokens=6):
    return rng.choice(len(probs), p=probs, size=(answers, tokens)).tolist()


def test_beginnings_and_grams_are_counted():
    found = features([5, 5, 6])
    assert found[(5,)] == 2
    assert found[(5, 5)] == found[(5, 6)] == found[(5, 5, 6)] == 1
    assert found[("begins", (5,))] == found[("begins", (5, 5, 6))] == 1
    assert sum(found.values()) == 3 + 2 + 1 + 3
    assert features([]) == {}


def test_the_distance_of_two_answers_is_the_difference_of_their_counts():
    found = distances([[1, 2], [1, 3], [1, 2]])
    # of 1 2 and 1 3 differ: 2 and 3, the pairs, and the beginnings of two
    assert found.tolist() == [[0, 6, 0], [6, 0, 6], [0, 6, 0]]


def test_the_place_of_the_statistic_is_that_of_the_energy_distance():
    """Against the definition, written out, over all exchanges of 3 and 3 answers."""
    from itertools import combinations

    rng = np.random.default_rng(4)
    ours, theirs = arm(rng, [0.6, 0.3, 0.1], 3, 3), arm(rng, [0.2, 0.3, 0.5], 3, 3)
    between = distances([*ours, *theirs])

    def energy(first):
        a, b = list(first), [i for i in range(6) if i not in first]
        mean = lambda x, y: between[np.ix_(x, y)].mean()
        return 2 * mean(a, b) - mean(a, a) - mean(b, b)

    real = energy((0, 1, 2))
    values = [energy(first) for first in combinations(range(6), 3)]
    further = np.mean([value > real + 1e-9 for value in values])
    level = np.mean([abs(value - real) < 1e-9 for value in values])
    found = [pvalue([(ours, theirs)], np.random.default_rng(i), 2000) for i in range(20)]
    assert min(found) > further - 0.03
    assert max(found) < further + level + 0.03
    assert np.mean(found) == pytest.approx(further + level / 2, abs=0.06)


def test_answers_that_are_all_alike_say_nothing():
    found = [pvalue([([[1, 2]] * 5, [[1, 2]] * 5)], np.random.default_rng(i), 99) for i in range(200)]
    assert uniformity(found)["pvalue"] > 0.001


def test_another_source_is_seen_and_prompts_are_never_mixed():
    rng = np.random.default_rng(0)
    one, two = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    assert pvalue([(arm(rng, one, 20), arm(rng, two, 20))], rng, 999) < 0.01
    strata = [([[1] * 4] * 10, [[1] * 4] * 10), ([[2] * 4] * 10, [[2] * 4] * 10)]
    assert len({pvalue(strata, np.random.default_rng(i), 99) for i in range(20)}) > 10  # nothing but broken ties
    weak = [(arm(rng, [0.5, 0.3, 0.2], 12), arm(rng, [0.35, 0.3, 0.35], 12)) for _ in range(6)]
    assert pvalue(weak, rng, 999) < min(pvalue([pair], rng, 999) for pair in weak) + 0.02  # prompts add up


@pytest.mark.parametrize("pair", [([], []), ([[1]], [[1], [2]])])
def test_arms_of_different_size_are_refused(pair):
    with pytest.raises(ValueError, match="as many answers"):
        pvalue([pair], np.random.default_rng(0))


def test_uniformity_of_known_values():
    found = uniformity([(i + 0.5) / 100 for i in range(100)])
    assert found == {"tests": 100, "distance": 0.005, "pvalue": 1.0, "below_0.05": 0.05, "below_0.01": 0.01}
    assert uniformity([0.001] * 50)["pvalue"] < 1e-6
    with pytest.raises(ValueError, match="nothing was tested"):
        uniformity([])


@pytest.mark.parametrize(("quantile", "chance"), [(1.2238, 0.1), (1.3581, 0.05), (1.6276, 0.01)])
def test_kolmogorov_s_table(quantile, chance):
    n = 1_000_000
    assert kolmogorov(quantile / math.sqrt(n), n) == pytest.approx(chance, rel=0.01)


def test_false_alarms_on_a_toy_are_as_many_as_promised_and_a_lossy_rule_is_seen():
    for contest in ("plain", "speculative"):
        assert uniformity(toy_pvalues(contest, 15, 0))["pvalue"] > 0.001
    assert uniformity(toy_pvalues("typical", 8, 0))["below_0.05"] > 0.5
