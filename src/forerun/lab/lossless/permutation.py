"""Do two sets of answers come from one distribution? A test that says no by mistake exactly as often as it is told.

The unit is a whole answer. Its tokens depend on one another and answers do not, so under the hypothesis that both arms
write from one distribution their answers to one prompt may be exchanged, and the order of the real statistic among its
values over random exchanges is uniform: no approximation, no cell that must be large enough. Prompts are strata;
answers are never exchanged between them. The statistic is the energy distance (Székely and Rizzo 2013) of the counts of
an answer's beginnings and n-grams, which sees a shift in what is said first as well as in how often anything is said.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

PERMUTATIONS = 9_999
BEGINNINGS = 8
"""An answer's first 1, 2, … 8 tokens each count as one thing."""
GRAMS = 3

Ids = Sequence[int]
Matrix = npt.NDArray[np.float64]
Strata = Sequence[tuple[Sequence[Ids], Sequence[Ids]]]
"""For each prompt the answers (token ids) of both arms, as many of one as of the other."""


def pvalue(strata: Strata, rng: np.random.Generator, permutations: int = PERMUTATIONS) -> float:
    """How often an exchange of answers would part the arms as far as they are, ties broken by chance: in (0, 1].

    ValueError unless each stratum has as many answers of one arm as of the other.
    """
    real, exchanged = 0.0, np.zeros(permutations)
    for ours, theirs in strata:
        if len(ours) != len(theirs) or not ours:
            raise ValueError(f"arms need as many answers each, got {len(ours)} and {len(theirs)}")
        between = distances([*ours, *theirs])
        signs = np.repeat([1.0, -1.0], len(ours))
        real += float(_energy(signs[None], between)[0])
        exchanged += _energy(rng.permuted(np.tile(signs, (permutations, 1)), axis=1), between)
    further, level = int((exchanged > real).sum()), int((exchanged == real).sum())
    return float((further + rng.uniform() * (level + 1)) / (permutations + 1))


def _energy(signs: Matrix, between: Matrix) -> Matrix:
    """Energy distance [P] times the squared number of answers an arm, for arms marked by `signs` [P, N]: whole numbers,
    so that equal partings are equal."""
    energy: Matrix = -((signs @ between) * signs).sum(axis=1)
    return energy


def distances(answers: Sequence[Ids]) -> Matrix:
    """How much each two of N answers differ [N, N]: the sum of the differences of their counts, a whole number."""
    columns: dict[object, int] = {}
    found = [features(answer) for answer in answers]
    for counter in found:
        for feature in counter:
            columns.setdefault(feature, len(columns))
    table = np.zeros((len(answers), len(columns)), dtype=np.int32)
    for row, counter in zip(table, found, strict=True):
        for feature, times in counter.items():
            row[columns[feature]] = times
    return np.array([np.abs(table - row).sum(axis=1) for row in table], dtype=np.float64)


def features(answer: Ids) -> Counter[object]:
    """What of an answer is counted: beginnings, and n-grams of 1..3 tokens wherever they stand."""
    ids = tuple(answer)
    counter: Counter[object] = Counter(("begins", ids[:length]) for length in range(1, min(len(ids), BEGINNINGS) + 1))
    for size in range(1, GRAMS + 1):
        counter.update(ids[i : i + size] for i in range(len(ids) - size + 1))
    return counter


def uniformity(pvalues: Sequence[float]) -> dict[str, Any]:
    """How far p-values are from uniform: the Kolmogorov distance, its own p-value, and the shares below 0.05 and 0.01.

    ValueError for none.
    """
    if not pvalues:
        raise ValueError("no p-values: nothing was tested")
    ordered, n = np.sort(np.asarray(pvalues, dtype=np.float64)), len(pvalues)
    steps = np.arange(n + 1) / n
    distance = float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))
    return {
        "tests": n,
        "distance": round(distance, 6),
        "pvalue": round(kolmogorov(distance, n), 6),
        "below_0.05": round(float((ordered < 0.05).mean()), 6),
        "below_0.01": round(float((ordered < 0.01).mean()), 6),
    }


def kolmogorov(distance: float, n: int) -> float:
    """The chance of so large a distance for n uniform values, by Stephens' approximation (good from n = 5 on)."""
    x = (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * distance
    if x < 0.2:
        return 1.0  # where the series converges slowly and is 1 to ten digits
    series = math.fsum((-1.0) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * series))
