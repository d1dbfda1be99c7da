"""Drafters by the name that options and result files use; a drafter's file is imported when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from forerun.core.errors import unknown


@dataclass(frozen=True, slots=True)
class Entry:
    """One drafter: where it is ("module:Class"), what it does and which fields of a plan it heeds.

    `Options` of the class are its own settings; `depth` is how far it guesses if nobody says: for lookups, which cost
    nothing, as far as one tile of 16 rows goes with the root.
    """

    path: str
    summary: str
    heeds: tuple[str, ...] = ("depth",)
    depth: int = 4
    nodes: int | None = None
    width: int | None = None
    """Of trees, if nobody says: None leaves a plan's own."""

    def load(self) -> type[Any]:
        """The drafter's class."""
        module, name = self.path.split(":")
        found: type[Any] = getattr(import_module(module), name)
        return found


CHAIN = ("depth",)
TREE = ("depth", "nodes", "width")
MODEL = (*TREE, "confidence")
CASCADES = ("first_of", "mixed")
"""Drafters that are made of others."""
HEADS = ("eagle", "eagle3", "p-eagle", "medusa", "mtp")
"""Drafters that run a trained head beside the target."""

DRAFTERS: dict[str, Entry] = {
    "none": Entry("forerun.drafters.none:NoDrafter", "no guesses: plain decoding", (), 0),
    "ngram": Entry(
        "forerun.drafters.ngram:NgramDrafter",
        "prompt lookup: what followed these words the last time, in the same text",
        CHAIN,
        15,
    ),
    "suffix": Entry(
        "forerun.drafters.suffix:SuffixDrafter",
        "suffix decoding: what followed these words how often, in the same text and in earlier answers",
        TREE,
        15,
    ),
    "prediction": Entry(
        "forerun.drafters.prediction:PredictionDrafter",
        "the answer that the request itself predicts, for edits of a known text",
        CHAIN,
        15,
    ),
    "model": Entry("forerun.drafters.model:ModelDrafter", "a smaller model with the same tokenizer", MODEL, 4),
    "skip": Entry("forerun.drafters.skip:SkipDrafter", "the target's own first layers, no second model", MODEL, 3),
    "eagle": Entry("forerun.drafters.eagle:EagleDrafter", "an EAGLE-1 head; EAGLE-2 with its tree", MODEL, 5, 11, 4),
    "eagle3": Entry("forerun.drafters.eagle:Eagle3Drafter", "an EAGLE-3 head: chain or dynamic tree", MODEL, 5, 11, 4),
    "p-eagle": Entry(
        "forerun.drafters.parallel:ParallelDrafter", "a P-EAGLE head: all tokens in one forward", MODEL, 5, 11, 4
    ),
    "medusa": Entry("forerun.drafters.medusa:MedusaDrafter", "Medusa heads, one for each distance", MODEL, 3, 11, 4),
    "mtp": Entry("forerun.drafters.mtp:MTPDrafter", "a multi-token-prediction module, used again", MODEL, 4, 11, 4),
    "first_of": Entry(
        "forerun.drafters.first_of:FirstOf",
        "a cascade: for each sequence the first drafter that has a guess",
        MODEL,
        8,
    ),
    "mixed": Entry(
        "forerun.drafters.mixed:Mixed",
        "lookups and a model: each step the longer guess, or both in one tree",
        MODEL,
        11,
        11,
    ),
}


def drafter_entry(name: str) -> Entry:
    """The entry of a drafter; SpecError for an unknown name."""
    if name not in DRAFTERS:
        raise unknown("drafter", name, DRAFTERS)
    return DRAFTERS[name]
