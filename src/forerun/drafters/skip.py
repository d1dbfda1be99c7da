"""Self-speculation: the target's own first layers draft for the whole of it.

After Zhang et al., "Draft & Verify" (2309.08168). There is no second model and no training; the shallow model shares
the target's weights and keeps a memory of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from forerun.core.draft import Law
from forerun.core.protocols import Target
from forerun.drafters.model import ModelDrafter, ModelOptions
from forerun.drafters.ranges import whole


@dataclass(frozen=True, slots=True)
class SkipOptions:
    """How to draft with the first layers. SpecError for values out of range."""

    layers: int | None = None
    """How many layers draft; None is a third of them."""
    law: Law = "foreseen"
    """As of the `model` drafter: chosen, foreseen, sampled or distinct."""
    chunk: int = 512
    """Tokens of the past that are read in one forward."""

    def __post_init__(self) -> None:
        ModelOptions(law=self.law, chunk=self.chunk)
        if self.layers is not None:
            whole(self, "layers", 1, 4096)


class SkipDrafter(ModelDrafter):
    """A ModelDrafter over `shallow`, the target's first layers as a target of their own."""

    name = "skip"
    Options = SkipOptions

    def __init__(self, shallow: Target, options: SkipOptions | None = None) -> None:
        options = options or SkipOptions()
        super().__init__(shallow, ModelOptions(law=options.law, chunk=options.chunk))
