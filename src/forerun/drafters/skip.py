"""Self-speculation: the target's own first layers draft for the whole of it.

After Zhang et al., "Draft & Verify" (2309.08168). There is no second model and no training; the shallow model shares
the target's weights and keeps a memory of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from forerun.core.draft import Law
from forerun.core.protocols import Target
from forerun.costs.prices import FREE, Prices
from forerun.drafters.model import ModelDrafter, ModelOptions, checked
from forerun.drafters.ranges import whole


@dataclass(frozen=True, slots=True)
class SkipOptions:
    """How to draft with the first layers. SpecError for values out of range."""

    layers: int | None = None
    """How many layers draft; None is a third of them."""
    law: Law = "foreseen"
    """As of the `model` drafter: chosen, foreseen, sampled or distinct."""
    level_cost: float | None = None
    """As of the `model` drafter."""
    chunk: int = 512
    """Tokens of the past that are read in one forward."""

    def __post_init__(self) -> None:
        checked(self, self.law, self.level_cost)
        if self.layers is not None:
            whole(self, "layers", 1, 4096)

    def of_model(self) -> ModelOptions:
        """The same for a model."""
        return ModelOptions(law=self.law, level_cost=self.level_cost, chunk=self.chunk)


class SkipDrafter(ModelDrafter):
    """A ModelDrafter over `shallow`, the target's first layers as a target of their own."""

    name = "skip"
    Options = SkipOptions

    def __init__(
        self, shallow: Target, options: SkipOptions | None = None, share: float = 0.0, prices: Prices = FREE
    ) -> None:
        super().__init__(shallow, (options or SkipOptions()).of_model(), share, prices=prices)
