"""What `scripts/bench_synthesis` shows: how fast a target answers its own prompts for training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.lab.views import Table, View


def view(figures: Mapping[str, Any]) -> list[View]:
    """A table by format of the weights."""
    heads = ("weights", "answered tokens", "all tokens", "seconds", "answered/s")
    rows = tuple(
        (weights, str(one["answered"]), str(one["tokens"]), f"{one['seconds']:.0f}", f"{one['per_second']:.0f}")
        for weights, one in figures["weights"].items()
    )
    return [Table("Answers to learn from", heads, rows)]
