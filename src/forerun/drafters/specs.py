"""What the text of a drafter says: how far it goes, what it shares in a batch, and its own options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from forerun.core.errors import SpecError, unknown
from forerun.core.options import Spec, build, coerce, documented
from forerun.core.plan import MAX_NODES, Plan
from forerun.drafters.names import CASCADES, DRAFTERS, Entry, drafter_entry
from forerun.trees.named import shape_of


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a plan is left in a batch."""

    up_to: int | None = None
    """No drafts where more sequences than this decode at once; none is no limit."""
    rows: int | None = None
    """Rows of a forward, the roots' included, that several sequences which decode at once share; one alone has its
    whole plan. None: 8 for a drafter that runs a model, on the CPU's runtime; else no limit."""


def split_plan(spec: Spec) -> tuple[Plan, Limits, dict[str, object]]:
    """The plan that a drafter's options describe (those of depth, nodes, width, confidence that it heeds), its
    limits in a batch, and the drafter's own options."""
    entry = drafter_entry(spec.name)
    own = own_options(spec.name)
    shared = set(shared_options(entry))
    for key in spec.values:
        if key not in shared and key not in own:
            raise unknown(f"{spec.name} option", key, {*own, *shared})
    wanted = entry_plan(entry)
    if tree := spec.values.get("tree"):
        shape = shape_of(str(tree))
        wanted |= {"depth": shape.depth, "nodes": len(shape), "width": max(1, shape.width)}
    if spec.name in CASCADES:
        wanted |= _widest(spec, wanted)
    given = {**wanted, **{key: value for key, value in spec.values.items() if key in shared}}
    names = [field.name for field in fields(Limits) if field.name in given]
    limits = build(Limits, {name: given.pop(name) for name in names}, spec.name)
    own_values = {key: value for key, value in spec.values.items() if key not in shared}
    plan = build(Plan, given, spec.name)
    if tree and plan.width < shape.width:
        raise SpecError(f"the tree {tree} has nodes with {shape.width} children, width={plan.width} allows fewer")
    return plan, limits, own_values


def _widest(spec: Spec, wanted: Mapping[str, object]) -> dict[str, object]:
    """The widest of a cascade's parts, and the most nodes unless the cascade has its own: what it is if nobody says.

    SpecError for a static tree among them that is wider than the cascade is told to be.
    """
    parts = [(part, split_plan(part)[0]) for part in parts_of(spec.name, str(spec.values.get("of", "")))]
    told = coerce(spec.values.get("width", MAX_NODES), int, f"{spec.name} width")
    for part, plan in parts:
        if "tree" in part.values and plan.width > told:
            raise SpecError(f"{part.name} has a tree with nodes of {plan.width} children, width={told} allows fewer")
    plans = [plan for _, plan in parts]
    return {"width": max(plan.width for plan in plans), "nodes": max(plan.nodes for plan in plans), **wanted}


def entry_plan(entry: Entry) -> dict[str, object]:
    """How far a drafter guesses if nobody says."""
    wanted = {"depth": entry.depth, "nodes": entry.nodes, "width": entry.width}
    return {key: value for key, value in wanted.items() if value is not None}


def own_options(name: str) -> dict[str, tuple[object, str]]:
    """A drafter's own options: name -> default and meaning."""
    return documented(drafter_entry(name).load().Options)


def shared_options(entry: Entry) -> dict[str, tuple[object, str]]:
    """The options about how far to guess that a drafter heeds: name -> default and meaning."""
    if not entry.heeds:
        return {}
    plan = {name: found for name, found in documented(Plan).items() if name in entry.heeds}
    wanted = {key: (value, plan[key][1]) for key, value in entry_plan(entry).items()}
    return {**plan, **wanted, **documented(Limits)}


def parts_of(name: str, of: str) -> list[Spec]:
    """The drafters of a cascade."""
    parts = [_part(text) for text in of.split("+")] if of else []
    if len(parts) < 2:
        raise SpecError(f"{name} takes the drafters in order, as {name}:of=prediction+ngram[min=3], got of={of!r}")
    for part in parts:
        if part.name not in DRAFTERS or part.name in CASCADES:
            raise unknown(f"drafter in {name}", part.name, set(DRAFTERS) - {*CASCADES})
    return parts


def _part(text: str) -> Spec:
    """One drafter of a cascade: `name` or `name[key=value;key=value]`."""
    name, bracket, rest = text.partition("[")
    if bracket and not rest.endswith("]"):
        raise SpecError(f"a drafter of a cascade is written as name[key=value;key=value], got {text!r}")
    return Spec.parse(f"{name}:{rest[:-1].replace(';', ',')}" if bracket else name)


def describe_drafters() -> dict[str, dict[str, Any]]:
    """Every drafter with its options, their defaults and what they mean, for people and for generated pages."""
    return {
        name: {
            "summary": entry.summary,
            "options": [
                {"name": key, "default": default, "help": text}
                for key, (default, text) in {**own_options(name), **shared_options(entry)}.items()
            ],
        }
        for name, entry in DRAFTERS.items()
    }
