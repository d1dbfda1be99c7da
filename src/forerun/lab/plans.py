"""Draft shapes as specs: a plan of a drafter, said as a user would say it (`suffix:depth=4,width=2,nodes=15`)."""

from __future__ import annotations

from dataclasses import replace

from forerun.core.errors import SpecError
from forerun.core.options import Spec
from forerun.core.plan import MAX_DEPTH, Plan
from forerun.drafters.names import drafter_entry
from forerun.drafters.specs import split_plan

NODES = 15  # of a tree if nobody says: one tile of 16 rows with the root


def base_plan(spec: str) -> Plan:
    """The plan of a spec, in normal form; SpecError for a drafter that guesses nothing."""
    plan = split_plan(Spec.parse(spec))[0]
    if not heeds(spec):
        raise SpecError(f"{spec!r} guesses nothing, so it has no shape: name a drafter (`forerun drafters`)")
    return normal(plan)


def heeds(spec: str) -> tuple[str, ...]:
    """The fields of a plan that the spec's drafter heeds."""
    return drafter_entry(Spec.parse(spec).name).heeds


def normal(plan: Plan) -> Plan:
    """The same limits said in one way: a chain has no budget of nodes, a tree is no deeper than it has nodes."""
    depth = min(plan.depth, plan.nodes)
    return replace(plan, depth=depth, nodes=MAX_DEPTH if plan.width == 1 else plan.nodes)


def chain(plan: Plan, depth: int) -> Plan:
    """A chain so deep."""
    return normal(replace(plan, depth=depth, width=1, nodes=MAX_DEPTH))


def tree(plan: Plan, depth: int, width: int, nodes: int) -> Plan:
    """A tree of at most so many nodes; a chain if `width` is 1."""
    return chain(plan, depth) if width == 1 else normal(replace(plan, depth=depth, width=width, nodes=nodes))


def said(spec: str, plan: Plan) -> str:
    """The spec of the same drafter, with its own options, and this plan."""
    parsed = Spec.parse(spec)
    own = {key: value for key, value in parsed.values.items() if key not in ("depth", "width", "nodes")}
    shape = {"depth": plan.depth}
    if plan.width > 1:
        shape |= {"width": plan.width, "nodes": plan.nodes}
    elif split_plan(Spec(parsed.name, own))[0].width > 1:  # what says nothing of its width is a tree there
        shape |= {"width": 1, "nodes": plan.depth}
    return f"{parsed.name}:{','.join(f'{key}={value}' for key, value in {**own, **shape}.items())}"


def to_json(plan: Plan) -> dict[str, int]:
    """Depth, width and nodes; a chain has as many as it is deep."""
    return {"depth": plan.depth, "width": plan.width, "nodes": plan.depth if plan.width == 1 else plan.nodes}
