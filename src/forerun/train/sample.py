"""One conversation to learn from: what was said, and what the target thought at each token."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sample:
    """`tokens` int32 [n]; `answered` bool [n] marks the target's own words; `states` bfloat16 [n - 1, taps * E] are of
    all tokens but the last."""

    number: int
    """Which conversation of the corpus: the same number and seed give the same one."""
    domain: str
    greedy: bool
    tokens: Tensor
    answered: Tensor
    states: Tensor
    system: str = ""
    """What the model was told before."""

    @property
    def learnt(self) -> int:
        """Tokens of the target's own."""
        return int(self.answered.sum())
