"""Verifiers by the name that options and result files use."""

from __future__ import annotations

from forerun.core.errors import unknown
from forerun.core.protocols import Verifier
from forerun.verify.auto import Auto
from forerun.verify.block import Block
from forerun.verify.chain import TokenLevel
from forerun.verify.greedy import Greedy
from forerun.verify.match import Match
from forerun.verify.reference import Reference
from forerun.verify.traversal import Traversal
from forerun.verify.tree import TreeRejection
from forerun.verify.typical import Typical

VERIFIERS: dict[str, type[Verifier]] = {
    "match": Match,
    "greedy": Greedy,
    "token": TokenLevel,
    "block": Block,
    "tree": TreeRejection,
    "traversal": Traversal,
    "typical": Typical,
    "auto": Auto,
    "reference": Reference,
}


def verifier(name: str) -> Verifier:
    """A verifier with its default options; SpecError for an unknown name."""
    if name not in VERIFIERS:
        raise unknown("verifier", name, VERIFIERS)
    return VERIFIERS[name]()
