"""What the records say: a cell for each model and concurrency, and every model against the first one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.lab.endpoint.cells import cell
from forerun.lab.endpoint.compare import compared, noise_figures, ratios
from forerun.lab.endpoint.part import Part
from forerun.lab.endpoint.plan import AGAIN
from forerun.lab.endpoint.prices import Price


def figures(parts: Sequence[Part], prices: Mapping[str, Price]) -> dict[str, Any]:
    """`cells` by arm and concurrency, `compared` by model and concurrency, `noise` by concurrency."""
    arms = list(dict.fromkeys(part.arm for part in sorted(parts, key=_rank)))
    levels = sorted({part.level for part in parts})
    first = next(arm for arm in arms if not arm.endswith(AGAIN) and arm + AGAIN in arms)
    of = {(arm, level): [p for p in parts if (p.arm, p.level) == (arm, level)] for arm in arms for level in levels}
    noise = {level: ratios(of[first, level], of[first + AGAIN, level]) for level in levels}
    others = [arm for arm in arms if arm not in (first, first + AGAIN)]
    return {
        "first": first,
        "cells": {
            arm: {str(level): cell(of[arm, level], prices.get(arm.removesuffix(AGAIN))) for level in levels}
            for arm in arms
        },
        "noise": {str(level): {name: noise_figures(found) for name, found in noise[level].items()} for level in levels},
        "compared": {
            arm: {str(level): compared(of[first, level], of[arm, level], noise[level]) for level in levels}
            for arm in others
        },
    }


def _rank(part: Part) -> bool:
    return part.arm.endswith(AGAIN)
