"""What speculation should give: Leviathan et al. (2211.17192), and the general form with measured costs.

Costs are in units of plain decoding's step unless a field says seconds. The paper verifies at the cost of one row; here
that cost is measured and given. Acceptance alone says nothing of speed: what decides is tokens a step over its cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from forerun.core.errors import SpecError
from forerun.lab.stats import Verdict


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens of a step that drafts `gamma`, each standing with chance `alpha`; the bonus token is one of them."""
    if not 0.0 <= alpha <= 1.0:
        raise SpecError(f"alpha is a chance from 0 to 1, got {alpha!r}")
    if gamma < 0:
        raise SpecError(f"gamma is a whole number from 0 up, got {gamma!r}")
    return sum(math.pow(alpha, k) for k in range(gamma + 1))  # the closed form has no value at alpha = 1


def expected_by_position(rates: Sequence[float]) -> float:
    """The same with a chance for each depth, given that all before it stood: nothing is taken to be independent."""
    return 1.0 + sum(accumulate(rates, lambda stood, rate: stood * rate))


def in_part(value: float, share: float) -> float:
    """The mean over all steps of what is `value` in the `share` of them that have a draft, and 1 in the others: the
    tokens of a step, or its forward in plain ones."""
    return share * value + (1.0 - share)


def walltime_factor(alpha: float, gamma: int, draft: float, verify: float = 1.0, share: float = 1.0) -> float:
    """Speed-up over plain decoding: a drafted token costs `draft`, verifying all of them `verify`.

    The paper drafts in every step. With a smaller `share` the others are plain, and `draft` is the mean over all steps.
    """
    return in_part(expected_tokens(alpha, gamma), share) / (gamma * draft + in_part(verify, share))


def operations_factor(alpha: float, gamma: int, draft: float) -> float:
    """Arithmetic done, over that of plain decoding, where a drafted token takes `draft` of a target token's."""
    return (gamma * draft + gamma + 1) / expected_tokens(alpha, gamma)


def best_gamma(
    alpha: float, draft: float, verify: Callable[[int], float], gammas: Iterable[int], share: float = 1.0
) -> int:
    """Of `gammas` the one with the highest walltime factor, the smaller of equals; 0 if none is above 1: do not draft.

    `verify(rows)` is the cost of a forward of so many rows, the root's included; `share` as for `walltime_factor`.
    """
    best, reached = 0, 1.0
    for gamma in sorted(gammas):
        factor = walltime_factor(alpha, gamma, draft, verify(gamma + 1), share)
        if factor > reached:
            best, reached = gamma, factor
    return best


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step of speculation is made of; all in one unit, seconds or plain steps."""

    plain: float
    """T(1): the forward of plain decoding."""
    verify: float
    """T_verify: the forward over root and guesses."""
    draft: float
    """All of a step's drafting: D * T_draft."""
    rest: float = 0.0
    """What is neither: the verdict, the commit, text, the scheduler."""

    @property
    def total(self) -> float:
        """The whole step."""
        return self.verify + self.draft + self.rest

    @property
    def draft_share(self) -> float:
        """Drafting's part of the step."""
        return self.draft / self.total

    def speedup(self, tau: float) -> float:
        """tau * T(1) / (T_verify + D * T_draft + rest), for `tau` tokens a step."""
        return tau * self.plain / self.total

    def obstacle(self, tau: float) -> str:
        """Why speculation does not pay, in a few words: the one part without which it would, or that tau is too low."""
        spared = {
            "draft too slow": replace(self, draft=0.0),
            "verifying too dear": replace(self, verify=self.plain),
            "too much machinery around the forward": replace(self, rest=0.0),
        }
        cause, without = max(spared.items(), key=lambda item: item[1].speedup(tau))
        if without.speedup(tau) <= 1.0:
            step = f"a step that costs {self.total / self.plain:.2f} plain ones, {self.draft_share:.0%} of it drafting"
            return f"too few guesses stand: {tau:.2f} tokens in {step}"
        return f"{cause}: without that cost it would be {without.speedup(tau):.2f} times as fast as plain"


def advice(found: Verdict, speedup: float, tau: float, cost: StepCost) -> str:
    """One sentence: whether a drafter pays by the clock, and what stands in the way if it does not."""
    if found == "faster":
        return f"pays: {speedup:.2f} times as fast as plain"
    if found == "too few prompts":
        return f"too few prompts to say: {speedup:.2f} times plain in these"
    said = "does not pay" if found == "slower" else "no gain beyond the noise"
    return f"{said} ({speedup:.2f} times plain); {cost.obstacle(tau)}"
