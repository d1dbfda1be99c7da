"""The controller that always says the same: the field's usual choice, and the baseline of every other."""

from __future__ import annotations

from dataclasses import replace

from forerun.core.errors import SpecError
from forerun.core.plan import Load, Plan
from forerun.core.protocols import StepTrace


class Fixed:
    """One plan at every step, plain decoding where more than `up_to` sequences decode at once, and where several share
    `rows` of a forward as many nodes for each as its share has room for beside the root.

    A large batch already fills the machine, so verifying drafts costs other requests their tokens.
    """

    def __init__(self, plan: Plan, up_to: int | None = None, rows: int | None = None) -> None:
        for name, value in (("up_to", up_to), ("rows", rows)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise SpecError(f"{name} must be a whole number from 0 up, got {value!r}")
        self._plan = plan
        self._up_to = up_to
        self._rows = rows

    def plan(self, load: Load) -> Plan:
        if self._up_to is not None and load.running > self._up_to:
            return Plan.none()
        if self._rows is None or load.running <= 1:
            return self._plan
        share = max(0, self._rows // load.running - 1)
        return self._plan if share >= self._plan.nodes else replace(self._plan, nodes=share)

    def observe(self, step: StepTrace) -> None:
        """Nothing to learn."""
