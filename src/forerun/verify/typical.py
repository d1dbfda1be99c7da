"""Typical acceptance: keep what the target finds likely enough (Medusa, 2401.10774). NOT lossless.

A child stands if the target gives it more than min(epsilon, delta * exp(-entropy)): a high bar where the
target is sure, a low one where it is not. Nothing is drawn, so the text follows the drafter wherever the
target does not mind. Of all paths that stand the longest is kept, of those the likeliest. The token after it is
the target's own draw; in Medusa's published code it is the target's likeliest whatever the temperature, which
`bonus="argmax"` does. At temperature 0 rows are one-hot and only the argmax passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

import torch
from torch import Tensor

from forerun.core.draft import LAWS, Draft, Tree, Verdict
from forerun.core.errors import SpecError, unknown
from forerun.core.noise import Noise
from forerun.core.rows import Rows
from forerun.verify.by_tree import by_tree

BONUSES = ("draw", "argmax")


@dataclass(frozen=True, slots=True)
class TypicalOptions:
    """What passes, and what comes after it. SpecError for values out of range."""

    epsilon: float = 0.09
    """A token that is likelier than this passes, from 0 (anything possible does) to 1."""
    delta: float = 0.3
    """So does one that is likelier than delta * exp(-entropy), from 0 to 1."""
    bonus: str = "draw"
    """The token after the path that stands: draw, the target's own draw, or argmax, its likeliest, as in Medusa's
    published code."""

    def __post_init__(self) -> None:
        for what, value in (("epsilon", self.epsilon), ("delta", self.delta)):
            if not 0.0 <= value <= 1.0:
                raise SpecError(f"typical acceptance: {what} must be a number from 0 to 1, got {value!r}")
        if self.bonus not in BONUSES:
            raise unknown("bonus of typical acceptance", self.bonus, BONUSES)


class Typical:
    """Keeps plausible drafts and so changes the distribution of the text at temperatures above 0."""

    name = "typical"
    laws = LAWS
    chains_only = False
    greedy_only = False
    lossless = False
    Options = TypicalOptions

    def __init__(self, epsilon: float = 0.09, delta: float = 0.3, bonus: str = "draw") -> None:
        self.options = TypicalOptions(epsilon, delta, bonus)

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        return by_tree(self, self.walk, draft, rows, noise)

    def walk(self, tree: Tree, rows: Rows, b: int, noise: Noise) -> tuple[list[int], int]:
        """The longest path of tree b that passes, and the token after it."""
        standing = {0: (0, 0.0)}  # node -> depth and log-probability of the path to it
        for node, children in enumerate(tree.children()):
            if node not in standing or not children:
                continue
            p = rows.probs(b, node)
            bar = self.bar(p)
            depth, likelihood = standing[node]
            probs: list[float] = p[[tree.tokens[child] for child in children]].tolist()
            for child, prob in zip(children, probs, strict=True):
                if prob > bar:
                    standing[child] = (depth + 1, likelihood + log(prob))
        best = max(standing, key=lambda node: standing[node])
        bonus = rows.argmax(b, best) if self.options.bonus == "argmax" else rows.pick(b, best, noise)
        return tree.path(best), bonus

    def bar(self, p: Tensor) -> float:
        """The probability that a token must exceed in the target's row p [V]."""
        entropy = float(-(p * torch.log(p + 1e-5)).sum())
        return min(self.options.epsilon, self.options.delta * exp(-entropy))
