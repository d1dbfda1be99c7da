"""What answers cost by a price table: {"MODEL": {"input": 0.15, "output": 0.6, "per": 1000000, "currency": "USD"}}.

Rejected prediction tokens are billed as output. OpenAI counts them in `completion_tokens`; a server that reports more
of them than of all completion tokens must count them apart, and there they are added. `cached`, if a table has it, is
the price of prompt tokens that the server found in its cache.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from forerun.core.errors import LoadError, SpecError
from forerun.core.options import build
from forerun.lab.endpoint.chunk import Usage

_PAIR = re.compile(r"\s*(\d+(?:\.\d*)?)\s*,\s*(\d+(?:\.\d*)?)\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Price:
    """Prices of `per` tokens in one currency."""

    input: float
    output: float
    per: int = 1_000_000
    currency: str = "USD"
    cached: float | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise SpecError(f"price {name!r} must be 0 or more, got {value!r}")
        if self.per < 1:
            raise SpecError(f"price 'per' is a number of tokens from 1 up, got {self.per}")

    def cost(self, usage: Usage) -> float:
        """Of one request."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(0, usage.prompt - usage.cached)
        extra = usage.rejected_prediction if usage.rejected_prediction > usage.completion else 0
        paid = (usage.completion + extra) * self.output + fresh * self.input + (usage.prompt - fresh) * cached
        return paid / self.per

    def of_rejected(self, usage: Usage) -> float:
        """The part of `cost` that went into prediction tokens which do not stand in the answer."""
        return usage.rejected_prediction * self.output / self.per


def read_prices(text: str | None, models: Iterable[str]) -> dict[str, Price]:
    """Prices by model out of `in,out` (per million tokens, USD, for all models) or a JSON file; {} for None.

    SpecError for a table that cannot be meant or lacks a model, LoadError for a file that cannot be read.
    """
    if text is None:
        return {}
    if pair := _PAIR.fullmatch(text):
        price = Price(float(pair[1]), float(pair[2]))
        return dict.fromkeys(models, price)
    table = _file(text)
    lacking = [model for model in models if model not in table]
    if lacking:
        raise SpecError(f"{text} has no price of {lacking[0]!r} (it has: {', '.join(sorted(table)) or 'none'})")
    return {model: _price(table[model], f"{text}, {model}:") for model in models}


def _file(name: str) -> Mapping[str, object]:
    try:
        table = json.loads(Path(name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(
            f"--prices takes IN,OUT per million tokens (as 0.15,0.6) or a JSON file, got {name!r}"
        ) from None
    except (OSError, ValueError) as error:
        raise LoadError(f"the price table {name} cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise LoadError(f"the price table {name} is no JSON object of models")
    return table


def _price(entry: object, what: str) -> Price:
    if not isinstance(entry, dict):
        raise SpecError(f"{what} a price is an object with {', '.join(f.name for f in fields(Price))}, got {entry!r}")
    return build(Price, entry, f"{what} price")
