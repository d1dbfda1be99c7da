"""The drafters and shapes that advice is given among."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from forerun.core.options import Spec, build
from forerun.core.plan import Plan
from forerun.drafters.names import CASCADES, HEADS, drafter_entry
from forerun.drafters.specs import entry_plan, split_plan

DEPTHS = (1, 2, 3, 4, 6, 8, 12, 15)
HEAD_SHAPES = ((1, 1, 1), (2, 1, 2), (3, 1, 3), (1, 3, 3), (2, 3, 6), (3, 3, 7), (3, 4, 11), (4, 4, 11), (5, 4, 15))
"""Depth, width, nodes of what runs a trained head: each level costs a forward of it, and its first ranks are good."""
TREES = ((4, 2, 7), (4, 3, 15), (8, 2, 15), (8, 3, 15))  # depth, width, nodes


@dataclass(frozen=True, slots=True)
class Candidate:
    """A drafter and a shape: `spec` is what an engine would be given."""

    spec: str
    plan: Plan


def candidates(drafters: Sequence[str]) -> list[Candidate]:
    """The grid: for each drafter every depth as a chain, and where it grows trees some of these; for a head shapes of
    few levels. What a spec says of the shape itself (`ngram:depth=5`) is taken as it is."""
    found: dict[str, Candidate] = {}
    for text in drafters:
        spec = Spec.parse(text)
        plan, _, own = split_plan(spec)
        entry = drafter_entry(spec.name)
        heeds, default = entry.heeds, build(Plan, entry_plan(entry), spec.name)
        shaped = set(spec.values) & {"depth", "nodes", "width", "tree"}
        if shaped or "depth" not in heeds:
            plans = [plan]
        elif spec.name in HEADS:
            plans = [replace(plan, depth=d, width=w, nodes=n) for d, w, n in HEAD_SHAPES]
        else:
            plans = [replace(plan, depth=depth) for depth in DEPTHS]
            if "width" in heeds and spec.name not in CASCADES:
                plans += [replace(plan, depth=d, width=w, nodes=n) for d, w, n in TREES]
        for each in plans:
            named = spelled(spec.name, own, each, default)
            found.setdefault(named, Candidate(named, each))
    return list(found.values())


def spelled(name: str, own: Mapping[str, object], plan: Plan, default: Plan) -> str:
    """A drafter's spec with the fields of the plan that are not its default."""
    fields = {field: getattr(plan, field) for field in ("depth", "width", "nodes", "confidence")}
    values = {**own, **{key: value for key, value in fields.items() if value != getattr(default, key)}}
    return f"{name}:{','.join(f'{key}={value}' for key, value in values.items())}" if values else name
