"""Which path of a draft stands: pure functions of draft, rows and noise, so that each of them can be enumerated.

`offers` is the law, `reference` the oracle, `names` the list. All are lossless but `typical`, which says so.
"""

from forerun.verify.auto import Auto
from forerun.verify.block import Block
from forerun.verify.chain import TokenLevel
from forerun.verify.greedy import Greedy
from forerun.verify.match import Match
from forerun.verify.names import VERIFIERS, verifier
from forerun.verify.reference import Reference
from forerun.verify.traversal import Traversal
from forerun.verify.tree import TreeRejection
from forerun.verify.typical import Typical

__all__ = [
    "VERIFIERS",
    "Auto",
    "Block",
    "Greedy",
    "Match",
    "Reference",
    "TokenLevel",
    "Traversal",
    "TreeRejection",
    "Typical",
    "verifier",
]
