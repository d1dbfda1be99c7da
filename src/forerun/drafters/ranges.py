"""Range checks of drafters' options: a setting that cannot be meant is refused before anything runs."""

from __future__ import annotations

from dataclasses import is_dataclass
from math import isfinite

from forerun.core.errors import SpecError


def whole(options: object, name: str, low: int, high: int) -> int:
    """The option `name`, a whole number from `low` to `high`; SpecError otherwise (True and 2.0 are none)."""
    value = getattr(options, name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise SpecError(f"{_of(options)} {name} must be a whole number from {low} to {high}, got {value!r}")
    return value


def number(options: object, name: str, low: float, high: float) -> float:
    """The option `name`, a finite number from `low` to `high`; SpecError otherwise."""
    value = getattr(options, name)
    fine = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if not fine or not low <= value <= high:
        raise SpecError(f"{_of(options)} {name} must be a number from {low:g} to {high:g}, got {value!r}")
    return float(value)


def ordered(options: object, low: str, high: str) -> None:
    """SpecError unless the option `low` is at most the option `high`."""
    least, most = getattr(options, low), getattr(options, high)
    if least > most:
        raise SpecError(f"{_of(options)} {low} ({least}) exceeds {high} ({most})")


def _of(options: object) -> str:
    """Whose options they are, by the class that others extend: those of every head are a head's."""
    first = next(base for base in reversed(type(options).__mro__) if is_dataclass(base))
    return first.__name__.removesuffix("Options").lower()
