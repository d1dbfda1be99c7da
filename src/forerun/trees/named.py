"""Trees that are published, by name."""

from __future__ import annotations

from pathlib import Path

from forerun.core.errors import unknown
from forerun.trees.shape import Shape

# SafeAILab's mc_sim_7b_63, which has 25 nodes, as EAGLE-1 was published with (2401.15077).
EAGLE_25 = (
    "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"
)  # fmt: skip
# FasterDecoding's mc_sim_7b_63, in its order of worth (2401.10774).
MEDUSA_63 = (
    "0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 020 12 003 40 21 004 005 0000 "
    "011 006 030 50 13 007 008 009 60 040 14 70 012 200 31 22 80 050 15 101 021 90 060 0001 16 070"
)

NAMED = {"eagle-25": EAGLE_25, "medusa-63": MEDUSA_63}


def shape_of(name: str) -> Shape:
    """A tree by name, `chain-4` among them, or a .json file of rank paths; SpecError for one that does not exist."""
    if name in NAMED:
        return Shape.of([[int(rank) for rank in node] for node in NAMED[name].split()])
    kind, _, depth = name.partition("-")
    if kind == "chain" and depth.isdecimal():
        return Shape.chain(int(depth))
    if name.endswith(".json"):
        return Shape.from_file(Path(name))
    raise unknown("tree", name, (*NAMED, "chain-4", "FILE.json"))
