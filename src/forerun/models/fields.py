"""Typed reading of a loose mapping: right type, right range, or a LoadError that names the key."""

import math
from collections.abc import Mapping

from forerun.core.errors import LoadError


class Fields:
    """Reads keys of one mapping; `prefix` is put before key names in errors."""

    def __init__(self, values: Mapping[str, object], prefix: str = "") -> None:
        self._values = values
        self._prefix = prefix

    def raw(self, key: str) -> object:
        """The value as it is, None if absent."""
        return self._values.get(key)

    def missing(self, key: str) -> bool:
        """Whether the key is absent or null."""
        return self._values.get(key) is None

    def null(self, key: str) -> bool:
        """Whether the key is there and null, which for some keys means "none" and not "the default"."""
        return key in self._values and self._values[key] is None

    def bad(self, key: str, allowed: str, hint: str = "config and weights may not belong together") -> LoadError:
        """The error for a value outside what is allowed."""
        got = repr(self._values.get(key))
        return LoadError(f"config {self._prefix}{key} is {got[:80]} (allowed: {allowed}): {hint}")

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """An integer within [low, high]; a bool is none."""
        got = default if self.missing(key) else self._values[key]
        if isinstance(got, bool) or not isinstance(got, int) or not low <= got <= high:
            raise self.bad(key, f"an integer from {low} to {high}")
        return got

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number within (low, high]."""
        got = default if self.missing(key) else self._values[key]
        fits = isinstance(got, int | float) and not isinstance(got, bool)
        if not fits or not isinstance(got, int | float) or not low < got <= high or not math.isfinite(got):
            raise self.bad(key, f"a number above {low:g}, at most {high:g}")
        return float(got)

    def maybe(self, key: str, low: float, high: float) -> float | None:
        """Like `number`, but None if absent."""
        return None if self.missing(key) else self.number(key, low, high)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        got = default if self.missing(key) else self._values[key]
        if not isinstance(got, bool):
            raise self.bad(key, "true or false")
        return got
