"""How speculation fares as prompts grow: reading long keys and values costs plain decoding and scoring alike, lookups
find more, and models that draft have to read all of it too.

A prompt of exactly so many tokens is a piece of a long text with a question at its end, in the model's own chat form.
Pieces begin at different places and run round the end of the text, which must be at least as long, so that no prompt
holds a passage twice. Answers have the same length.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from forerun.core.errors import LoadError, SpecError
from forerun.lab.arms import Arm
from forerun.lab.bench import Bench
from forerun.lab.paired import Asked, LogFor, Samples
from forerun.lab.run import Answers, Run
from forerun.lab.sweeps.groups import Group, measure_groups
from forerun.lab.sweeps.points import run_points
from forerun.workloads.suites import SUITES, suite
from forerun.workloads.workload import Prompt, Workload

QUESTION = "Tell me in your own words what the text above says."
_LEAST = 16  # tokens of text below which there is nothing to ask about


@dataclass(frozen=True, slots=True)
class LongText:
    """What prompts are cut from."""

    name: str
    text: str

    @property
    def digest(self) -> str:
        """The first 16 hexadecimal digits of its SHA-256."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def as_workload(self) -> Workload:
        """The text as the one prompt of a set, for whoever has to know it again."""
        return Workload(self.name, (Prompt("text", (self.text,)),), "text")


def long_text(path: Path | None) -> LongText:
    """A file's text, or all prompts of the shipped suites one after another; LoadError for a file that is none."""
    if path is None:
        texts = [turn for name in SUITES for prompt in suite(name) for turn in prompt.turns]
        return LongText("suites", "\n\n".join(texts))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{os.fspath(path)} cannot be read as UTF-8 text: {error}") from None
    if not text.strip():
        raise LoadError(f"{os.fspath(path)} is empty: give a text as long as the longest prompt")
    return LongText(path.name, text)


class Cutter:
    """Prompts of exact lengths out of one text, for one model."""

    def __init__(self, bench: Bench, text: LongText, question: str = QUESTION) -> None:
        self.before, self.after = _frame(bench, question)
        words = bench.base.words
        assert words is not None  # `_frame` has encoded texts
        self.ids = words.encode(text.text, bos=False)
        self.name = text.name

    @property
    def shortest(self) -> int:
        """Tokens of the shortest prompt."""
        return len(self.before) + len(self.after) + _LEAST

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt in which nothing of the text is twice."""
        return len(self.before) + len(self.ids) + len(self.after)

    def prompt(self, length: int, part: int, parts: int) -> tuple[int, ...]:
        """A prompt of `length` tokens whose text begins `part` of `parts` on; SpecError if it cannot be made."""
        if not self.shortest <= length <= self.longest:
            raise SpecError(
                f"a prompt of {length} tokens cannot be cut: {self.name} makes {self.shortest} to {self.longest}; "
                "give other lengths (--context) or a longer text (--text)"
            )
        start = part * len(self.ids) // parts
        around = self.ids[start:] + self.ids[:start]
        return (*self.before, *around[: length - len(self.before) - len(self.after)], *self.after)


def _frame(bench: Bench, question: str) -> tuple[list[int], list[int]]:
    """The tokens before and after a text in a user's turn: what prompts with two texts of different ends share."""
    one, two = (bench.tokens([{"role": "user", "content": f"{text}\n\n{question}"}]) for text in ("North", "west"))
    return _shared(one, two), _shared(one[::-1], two[::-1])[::-1]


def _shared(one: Sequence[int], two: Sequence[int]) -> list[int]:
    """How both begin."""
    return [a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False))]


def lengths(wanted: Sequence[int] | None, defaults: Sequence[int], cutter: Cutter, limit: int) -> list[int]:
    """The lengths that are measured: those wanted, or the defaults that the text and the context allow, up to `limit`
    itself. SpecError for a wanted one above `limit`, or if none is left."""
    if wanted is not None:
        if max(wanted) > limit:
            raise SpecError(
                f"a prompt of {max(wanted)} tokens leaves no room for the answer: at most {limit} do (the context less "
                "the answer); give shorter ones (--context) or shorter answers (--tokens)"
            )
        return sorted(set(wanted))
    most = min(limit, cutter.longest)
    found = sorted({*(length for length in defaults if cutter.shortest <= length < most), most})
    if most < cutter.shortest:
        raise SpecError(f"the context has room for prompts of {limit} tokens, the shortest has {cutter.shortest}")
    return found


def run_context(
    bench: Bench,
    run: Run,
    cutter: Cutter,
    sizes: Sequence[int],
    pieces: int,
    drafters: Sequence[str],
    asked: Asked,
    log: LogFor | None = None,
) -> tuple[dict[str, Any], Samples]:
    """The figures and what they come from: at each length `pieces` prompts, `asked.rounds` times."""
    groups = {
        size: [
            Group(f"piece {part + 1}", (cutter.prompt(size, part, pieces),), round, first=part)
            for round in range(asked.rounds)
            for part in range(pieces)
        ]
        for size in sizes
    }

    def ask(size: int, key: str, arms: Sequence[Arm]) -> Samples:
        return measure_groups(run, arms, groups[size], asked, key=key, workload=cutter.name, log=log)

    figures, samples = run_points(bench, run, "context", sizes, drafters, ask)
    del figures["left_out"]  # prompts are cut to fit
    return figures, samples


def answers(bench: Bench, text: LongText, pieces: int, drafters: Sequence[str], asked: Asked) -> Answers:
    """The five answers of such a run."""
    p = asked.params
    how = f"temperature {p['temperature']:g}, seed {p['seed']}" if p.get("temperature") else "greedy"
    cut = f"{text.name} ({text.digest}), {pieces} pieces of each length with a question"
    ends = f"{p['max_tokens']} tokens an answer, end of text suppressed, {how}, {asked.rounds} rounds"
    return Answers(stack=bench.stack, data=f"{cut}; {ends}", shape="; ".join(drafters) or "none")
