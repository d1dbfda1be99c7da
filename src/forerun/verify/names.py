"""Verifiers by the name that options and result files use."""

from __future__ import annotations

from dataclasses import asdict

from forerun.core.errors import SpecError, unknown
from forerun.core.options import Spec, build
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


def verifier(text: str) -> Verifier:
    """The verifier of a name, with options behind a colon as `typical:bonus=argmax`; SpecError for what does not
    exist."""
    spec = Spec.parse(text, "verifier")
    if spec.name not in VERIFIERS:
        raise unknown("verifier", spec.name, VERIFIERS)
    made = VERIFIERS[spec.name]
    options = getattr(made, "Options", None)
    if options is None and spec.values:
        raise SpecError(f"the verifier {spec.name} takes no options, got {text!r}")
    return made(**asdict(build(options, spec.values, spec.name))) if options else made()
