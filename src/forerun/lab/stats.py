"""Ratios with intervals, and what may be said of them.

The unit is the prompt: its tokens depend on one another, so resampling tokens or steps would give intervals that are
far too narrow. Both arms' times of one prompt stay together (a paired bootstrap), so that easy and hard prompts do not
count as noise. Efron and Tibshirani, "An Introduction to the Bootstrap", chapter 13 (percentile intervals).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

RESAMPLES = 10_000
FEWEST = 6
"""Pairs below which no interval is given. A percentile interval lies within the span of the values, and the span of n
holds the median of what they were drawn from no more often than 1 - 2^(1 - n): six are needed for 95 %."""
CALM = (0.97, 1.03)  # where two runs of one arm should agree

Verdict = Literal["faster", "slower", "no difference", "too few prompts"]
Pairs = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % interval, `of` that many pairs; no interval (None) below FEWEST of them."""

    value: float
    low: float | None
    high: float | None
    of: int

    def to_json(self) -> dict[str, object]:
        """To six digits after the point."""
        return {
            "value": round(self.value, 6),
            "low": None if self.low is None else round(self.low, 6),
            "high": None if self.high is None else round(self.high, 6),
            "of": self.of,
        }


def ratio(pairs: Pairs, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The median over `pairs` of first / second, with its interval; ValueError for no pairs."""
    values = np.array([a / b for a, b in pairs], dtype=np.float64)
    return _interval(len(pairs), lambda rows: np.median(values[rows], axis=-1), resamples, seed)


def total_ratio(pairs: Pairs, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Sum of the firsts over sum of the seconds, with its interval: large pairs weigh more. ValueError for no pairs."""
    tops = np.array([a for a, _ in pairs], dtype=np.float64)
    bottoms = np.array([b for _, b in pairs], dtype=np.float64)
    return _interval(len(pairs), lambda rows: tops[rows].sum(-1) / bottoms[rows].sum(-1), resamples, seed)


def _interval(count: int, figure: Callable[[Any], Any], resamples: int, seed: int) -> Interval:
    """`figure` of all pairs, and the middle 95 % of it over resamples of them with replacement."""
    if count == 0:
        raise ValueError("no pairs: nothing was measured in both arms")
    value = float(figure(np.arange(count)))
    if count < FEWEST:
        return Interval(value, None, None, count)
    rows = np.random.default_rng(seed).integers(0, count, size=(resamples, count))
    low, high = np.percentile(figure(rows), (2.5, 97.5))
    return Interval(value, float(low), float(high), count)


def verdict(found: Interval, noise: Interval) -> Verdict:
    """What a ratio says beside the noise floor, the ratio of two runs of one arm: a difference inside it is none."""
    if found.low is None or found.high is None or noise.low is None or noise.high is None:
        return "too few prompts"
    if found.low > max(noise.high, noise.value, 1.0):
        return "faster"
    if found.high < min(noise.low, noise.value, 1.0):
        return "slower"
    return "no difference"


def calm(noise: Interval) -> bool:
    """Whether two runs of one arm agree as they should; where they do not, the machine was not quiet enough."""
    return CALM[0] <= noise.value <= CALM[1]


def holm(pvalues: Sequence[float]) -> list[float]:
    """Holm's adjustment for several tests at once, in the order given: reject where it is below the level."""
    order = sorted(range(len(pvalues)), key=lambda i: pvalues[i])
    adjusted, worst = [0.0] * len(pvalues), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(pvalues) - rank) * pvalues[i]))
        adjusted[i] = worst
    return adjusted
