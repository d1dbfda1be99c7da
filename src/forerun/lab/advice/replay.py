"""What a drafter would have done with an answer that is known already: no forward of the target is needed.

Plain decoding writes the answer once. A drafter whose drafts are judged by matching (`chosen`, `foreseen`) is then led
along it: at each step it guesses, and the guesses that the text agrees with are those that the target would have
accepted, for the text is the target's whatever is drafted. So every drafter and shape can be tried on one answer for
the price of drafting alone; with the cost of a forward by rows that gives the time it would have taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from forerun.core.draft import Draft, Tree, Verdict
from forerun.core.errors import SpecError
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.protocols import Drafter, Remembers
from forerun.core.rows import Rows
from forerun.core.seq import Seq, Token
from forerun.core.vocabulary import Vocabulary
from forerun.core.work import Item


@dataclass(frozen=True, slots=True)
class Replay:
    """The steps after the first, as live measurements count them."""

    rows: tuple[int, ...]
    """Rows of the target's forward in each step."""
    tokens: int
    """Tokens that these steps gained."""
    draft_s: float

    def seconds(self, forward: Callable[[int], float], rest: float) -> float:
        """How long it would have taken: `forward` is seconds by rows, `rest` what a step takes beside it."""
        return self.draft_s + sum(map(forward, self.rows)) + rest * len(self.rows)


@dataclass(frozen=True, slots=True)
class Known:
    """An answer of plain decoding."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    params: Mapping[str, Any]
    """Fields of SamplingParams, with the seed it was drawn with."""


def can_replay(drafter: Drafter) -> bool:
    """Whether the drafts of this drafter are judged by the text alone, and need nothing of the target but the text."""
    return not drafter.taps and drafter.laws <= {"chosen", "foreseen"}


def replay(
    drafter: Drafter, plan: Plan, known: Known, vocabulary: Vocabulary, max_len: int, stops: frozenset[int]
) -> Replay:
    """Lead `drafter` along a known answer; SpecError for a drafter that `can_replay` says no of."""
    if not can_replay(drafter):
        raise SpecError(f"the drafts of {drafter.name!r} cannot be judged by the text alone: measure it live")
    if isinstance(drafter, Remembers):
        drafter.forget()
    seq = Seq(0, known.prompt, SamplingParams(**known.params), max_len, stops)
    noise = SeededNoise([seq.seed], vocabulary.race)
    drafter.begin(seq)
    rows: list[int] = []
    draft_s, first = 0.0, 0
    try:
        while not seq.finished and len(seq.output) < len(known.answer):
            start = perf_counter()
            draft = drafter.draft([seq], plan, noise) if plan else Draft.roots([seq.last])
            tree = draft.trees[0]
            spent = perf_counter() - start
            ahead = known.answer[len(seq.output) :]
            path = agreed(tree, ahead[:-1])
            start = perf_counter()
            drafter.accept([seq], draft, _blank(seq, tree), Verdict((path,), (ahead[len(path)],)))
            spent += perf_counter() - start
            if first:
                rows.append(len(tree))
                draft_s += spent
            seq.extend(Token(token) for token in ahead[: len(path) + 1])
            first = first or len(seq.output)
    finally:
        drafter.end(seq)
    return Replay(tuple(rows), len(seq.output) - first, draft_s)


def agreed(tree: Tree, text: Sequence[int]) -> tuple[int, ...]:
    """The nodes from the root down that `text` agrees with."""
    path: list[int] = []
    node = 0
    for token in text:
        below = [n for n in range(node + 1, len(tree)) if tree.parents[n] == node and tree.tokens[n] == token]
        if not below:
            break
        node = below[0]
        path.append(node)
    return tuple(path)


def _blank(seq: Seq, tree: Tree) -> Rows:
    """Rows of a forward that nobody made: drafters without taps look at none."""
    return Rows([Item(seq, len(seq) - 1, len(seq) - 1, tree)], torch.empty(len(tree), 0), 0)
