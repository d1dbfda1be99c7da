"""What a drafter would have done with an answer that is known already: no forward of the target is needed.

Plain decoding writes the answer once. A drafter whose drafts are judged by matching (`chosen`, `foreseen`) is then led
along it: at each step it guesses, and the guesses that the text agrees with are those that the target would have
accepted, for the text is the target's whatever is drafted. So every drafter and shape can be tried on one answer for
the price of drafting alone; with the cost of a forward by rows that gives the time it would have taken. Heads read the
target's hidden states: those of the answer are captured once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from forerun.core.draft import Draft, Tree, Verdict
from forerun.core.errors import CapacityError, SpecError
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.protocols import Drafter, Remembers, Target
from forerun.core.rows import Rows
from forerun.core.seq import Seq, Token
from forerun.core.vocabulary import Vocabulary
from forerun.core.work import Item
from forerun.engine.sound import sound

_CHUNK = 512  # tokens that are read at a time
_ANY = 1 << 31  # of the ids that a drafter may guess, none is looked up here


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
    hidden: Tensor | None = None
    """The target's hidden states [prompt + answer - 1, taps * E] of the layers that a drafter taps."""


def can_replay(drafter: Drafter) -> bool:
    """Whether the drafts of this drafter are judged by the text alone."""
    return drafter.laws <= {"chosen", "foreseen"}


def listened(known: Known, target: Target, taps: tuple[int, ...]) -> Known:
    """The answer with the hidden states of these layers: the target reads it once more, as a prompt."""
    tokens = (*known.prompt, *known.answer)
    seq, parts = Seq(0, tokens, SamplingParams(), target.spec.max_len), []
    held = target.begin(seq)
    try:
        while held < len(tokens) - 1:
            count = min(_CHUNK, len(tokens) - 1 - held)
            if not target.reserve(seq, count):
                raise CapacityError(f"an answer of {len(tokens)} tokens does not fit the memory: give --kv-tokens")
            hidden = target.score([Item(seq, held, held + count)], taps=taps).hidden
            assert hidden is not None
            parts.append(hidden.clone())
            held += count
    finally:
        target.release(seq)
    return replace(known, hidden=torch.cat(parts))


def replay(
    drafter: Drafter, plan: Plan, known: Known, vocabulary: Vocabulary, max_len: int, stops: frozenset[int]
) -> Replay:
    """Lead `drafter` along a known answer; SpecError for a drafter that `can_replay` says no of."""
    if not can_replay(drafter) or (drafter.taps and known.hidden is None):
        raise SpecError(f"the drafts of {drafter.name!r} cannot be judged by the text alone: measure it live")
    if isinstance(drafter, Remembers):
        drafter.forget()
    seq = Seq(0, known.prompt, SamplingParams(**known.params), max_len, stops)
    noise = SeededNoise([seq.seed], vocabulary.race)
    drafter.begin(seq)
    rows: list[int] = []
    draft_s, first, held = 0.0, 0, 0
    try:
        while not seq.finished and len(seq.output) < len(known.answer):
            start = perf_counter()
            draft = drafter.draft([seq], plan, noise) if plan else Draft.roots([seq.last])
            spent = perf_counter() - start
            draft = sound(draft, [seq], plan, drafter.laws, _ANY)  # as the engine does before it scores
            tree = draft.trees[0]
            ahead = known.answer[len(seq.output) :]
            path = agreed(tree, ahead[:-1])
            told = _rows(seq, held, tree, path, known.hidden if drafter.taps else None)
            start = perf_counter()
            if drafter.taps and len(seq) - 1 > held:
                drafter.read(told)
            drafter.accept([seq], draft, told, Verdict((path,), (ahead[len(path)],)))
            spent += perf_counter() - start
            held = len(seq) + len(path)
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


def _rows(seq: Seq, held: int, tree: Tree, path: Sequence[int], hidden: Tensor | None) -> Rows:
    """Rows of a forward that nobody made: no logits, and where a drafter taps the target the hidden states of what is
    known to stand. Those of other guesses are zeros, for nothing looks at them."""
    item = Item(seq, held, len(seq) - 1, tree)
    if hidden is None:
        return Rows([item], torch.empty(len(tree), 0), 0)
    guessed = hidden.new_zeros(len(tree), hidden.shape[1])
    guessed[[0, *path]] = hidden[len(seq) - 1 : len(seq) + len(path)]
    return Rows([item], torch.empty(len(tree), 0), 0, torch.cat([hidden[held : len(seq) - 1], guessed]))
