"""The controller that always says the same: the field's usual choice, and the baseline of every other."""

from __future__ import annotations

from forerun.core.errors import SpecError
from forerun.core.plan import Load, Plan
from forerun.core.protocols import StepTrace


class Fixed:
    """One plan at every step, and plain decoding where more than `up_to` sequences decode at once.

    A large batch already fills the machine, so verifying drafts costs other requests their tokens.
    """

    def __init__(self, plan: Plan, up_to: int | None = None) -> None:
        if up_to is not None and (isinstance(up_to, bool) or not isinstance(up_to, int) or up_to < 0):
            raise SpecError(f"up_to must be a whole number from 0 up, got {up_to!r}")
        self._plan = plan
        self._up_to = up_to

    def plan(self, load: Load) -> Plan:
        if self._up_to is not None and load.running > self._up_to:
            return Plan.none()
        return self._plan

    def observe(self, step: StepTrace) -> None:
        """Nothing to learn."""
