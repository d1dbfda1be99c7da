"""The experiments whose results files can be shown, by name: each module has `view(figures)`, or the function that is
named behind it. Sweeps in the common form need no entry."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from forerun.core.errors import unknown
from forerun.lab.views import View

EXPERIMENTS = {
    "curve": "forerun.lab.costs.curve_view",
    "domains": "forerun.lab.domains",
    "shape": "forerun.lab.shape_view",
    "tree": "forerun.lab.tree_view",
    "phases": "forerun.lab.phases_view",
    "weights": "forerun.lab.sweeps.weights",
    "size": "forerun.lab.sweeps.size",
    "lossless": "forerun.lab.lossless",
    "advise": "forerun.lab.advice.show",
    "advice": "forerun.lab.advice_view",
    "endpoint": "forerun.lab.endpoint",
    "memory": "forerun.lab.bench_views:memory",
    "neighbours": "forerun.lab.bench_views:neighbours",
    "noise": "forerun.lab.bench_views:noise",
    "perplexity": "forerun.lab.bench_views:perplexity",
    "rows": "forerun.lab.bench_views:rows",
    "synthesis": "forerun.lab.bench_views:synthesis",
    "peers": "forerun.lab.peers",
}


def views(experiment: str, figures: Mapping[str, Any]) -> list[View]:
    """What a result of this experiment shows; SpecError for one that is not known."""
    swept = "forerun.lab.sweeps.points" if "axis" in figures and "sets" in figures else None
    module = EXPERIMENTS.get(experiment, swept)
    if module is None:
        raise unknown("experiment", experiment, EXPERIMENTS)
    path, _, name = module.partition(":")
    found: list[View] = getattr(import_module(path), name or "view")(figures)
    return found
