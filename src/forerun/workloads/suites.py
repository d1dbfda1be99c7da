"""Small prompt suites of our own, shipped with the package, so that a measurement can be repeated anywhere.

    code          functions to write from a description, in several languages
    arithmetic    problems of two or three steps; `reference` has the answer
    dialogue      free questions, where nothing can be looked up
    summary       texts of 150 to 400 words to be shortened
    translation   between English and German, French, Spanish and Russian; the pair is the category, as en-de
    edit          code or a file to be given back whole with a small change
    writing       stories, letters and descriptions
    russian       dialogue in Russian
    french        dialogue in French

All is written for this package and free to use under its licence; nothing is taken from a public set, so a model cannot
know the answers from there. Some prompts of code, dialogue, writing, russian and french have two turns.
"""

from __future__ import annotations

from importlib.resources import files

from forerun.core.errors import unknown
from forerun.workloads.files import from_jsonl
from forerun.workloads.prompts import Prompt

SUITES = ("code", "arithmetic", "dialogue", "summary", "translation", "edit", "writing", "russian", "french")


def suite(name: str) -> tuple[Prompt, ...]:
    """The prompts of a suite; SpecError for a name that is not shipped."""
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    file = f"{name}.jsonl"
    return from_jsonl(files("forerun.workloads").joinpath(file).read_text(encoding="utf-8"), file)
