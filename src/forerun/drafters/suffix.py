"""Suffix decoding: what followed these words, in this text and in earlier answers, and how often.

After Oliaro et al., "SuffixDecoding" (2411.04975), and Arctic Inference. They keep suffix trees with counts; a node of
such a tree is the set of places that follow one context, so we walk sets of places (a bounded number, the newest) from
the index and never build the tree. Two choices differ from theirs: a place at the very end of a text has seen nothing
follow and is not counted, and a context of fewer than `min_match` tokens is not looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import log

from forerun.core.draft import Draft, Law, Signal, Tree, Verdict
from forerun.core.noise import Noise
from forerun.core.plan import Plan
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.drafters.answers import BORDER, Answers
from forerun.drafters.index import Occurrences
from forerun.drafters.ranges import number, ordered, whole


@dataclass(frozen=True, slots=True)
class SuffixOptions:
    """How to look up. SpecError for values out of range."""

    min_match: int = 2
    """Shortest context that is looked up, in tokens, 1..16."""
    max_depth: int = 64
    """Longest context that is told apart."""
    min_prob: float = 0.1
    """Nodes whose path is less likely than this are not drafted."""
    factor: float = 1.0
    """A context of m tokens drafts at most factor * m + offset tokens deep."""
    offset: float = 0.0
    """See `factor`."""
    candidates: int = 32
    """Newest places looked at in each text; the best place of the last step is always looked at too."""
    cached: int = 100_000
    """Tokens of earlier answers to look in, oldest answers dropped first; 0 keeps requests apart."""

    def __post_init__(self) -> None:
        whole(self, "min_match", 1, 16)
        whole(self, "max_depth", 1, 1024)
        ordered(self, "min_match", "max_depth")
        number(self, "min_prob", 0.0, 1.0)
        number(self, "factor", 0.0, 256.0)
        number(self, "offset", 0.0, 256.0)
        whole(self, "candidates", 1, 4096)
        whole(self, "cached", 0, 1 << 28)


@dataclass(frozen=True, slots=True)
class Guess:
    """A tree under a context and the number of its tokens that are expected to stand."""

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    score: float = 0.0
    signals: tuple[Signal, ...] = ()
    """Of each token, if they were asked for: by counts, as its chance is, whatever the request's temperature."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one guess."""

    depth: int
    nodes: int
    width: int
    min_prob: float = 0.0
    confidence: float = 0.0
    signals: bool = False


@dataclass(slots=True)
class _Place:
    """The longest match of the last step: in which index, and where when the text was how long."""

    index: Occurrences | None = None
    at: int = -1
    length: int = 0

    def hint(self, index: Occurrences, length: int) -> int:
        """Where that match would be by now, -1 if it is not in this index."""
        return self.at + length - self.length if self.index is index and self.at > 0 else -1


@dataclass(slots=True)
class _Reading:
    """One sequence's own index, and its running matches there and in earlier answers."""

    index: Occurrences
    own: _Place
    shared: _Place


class SuffixDrafter:
    """Chains (width 1) or trees of what is likeliest by count; a step's work does not grow with the texts."""

    name = "suffix"
    Options = SuffixOptions
    laws: frozenset[Law] = frozenset({"chosen"})
    taps: tuple[int, ...] = ()

    def __init__(self, options: SuffixOptions | None = None) -> None:
        self.options = options or SuffixOptions()
        self.answers = Answers(self.options.cached, self.options.min_match)
        self._readings: dict[Seq, _Reading] = {}

    def begin(self, seq: Seq) -> None:
        """Index the text."""
        self._readings[seq] = _Reading(Occurrences(seq.tokens, self.options.min_match), _Place(), _Place())

    def read(self, rows: Rows) -> None:
        """No taps."""

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """A tree for each sequence, or its root where nothing matches."""
        return Draft(tuple(self._tree(seq, plan) for seq in seqs))

    def _tree(self, seq: Seq, plan: Plan) -> Tree:
        reading = self._readings[seq]
        reading.index.update()
        limits = Limits(min(plan.depth, seq.room), plan.nodes, plan.width, self.options.min_prob, plan.confidence)
        limits = replace(limits, signals=True) if plan.signals else limits
        guess = self._best(reading.index, reading.own, seq, limits)
        if self.options.cached and guess.score < limits.depth:
            other = self._best(self.answers.index, reading.shared, seq, limits)
            guess = other if other.score > guess.score else guess
        signals = dict(enumerate(guess.signals, start=1))
        return Tree((seq.last, *guess.tokens), (-1, *guess.parents), signals=signals)

    def _best(self, index: Occurrences, running: _Place, seq: Seq, limits: Limits) -> Guess:
        """The guess with the highest score over all lengths of context; among equals the longest context's."""
        options, best = self.options, Guess()
        hint = running.hint(index, len(seq))
        found = index.matches(seq.tokens, options.candidates, options.max_depth, hint)
        running.index, running.length = index, len(seq)
        running.at = max(found, key=lambda match: match[1], default=(-1, 0))[0]
        for length in sorted({agreed for _, agreed in found}, reverse=True):
            reach = min(limits.depth, int(length * options.factor + options.offset + 1e-6))
            if reach <= best.score:
                break  # no tree of this depth can score higher
            places = [place for place, agreed in found if agreed >= length]
            guess = grow(index.tokens, places, reach, limits)
            best = guess if guess.score > best.score else best
        return best

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """Nothing to learn: the next draft reads the grown text."""

    def end(self, seq: Seq) -> None:
        """Forget the text; keep the answer for others if it came to its end."""
        self._readings.pop(seq, None)
        if seq.finished:
            self.answers.add(seq.token_ids)

    def forget(self) -> None:
        """Forget earlier answers."""
        self.answers = Answers(self.options.cached, self.options.min_match)


def grow(tokens: Sequence[int], places: Sequence[int], depth: int, limits: Limits) -> Guess:
    """The likeliest nodes first, each node's children by how many of its places they stand at.

    `places` are newest first; among equally frequent tokens the most recent comes first.
    """
    drafted: list[int] = []
    parents: list[int] = []
    signals: list[Signal] = []
    score, order = 0.0, 0
    open_: list[tuple[float, int, int, int, list[int], Signal | None]] = []
    parent, chance, level, here = 0, 1.0, 0, list(places)
    while True:
        if level < depth and chance >= limits.confidence:
            found = _continuations(tokens, here)
            entropy = -sum(share * log(share) for _, _, share in found) if limits.signals else 0.0
            for token, below, share in found[: limits.width]:
                if chance * share >= limits.min_prob:
                    order += 1
                    signal = Signal(share, entropy) if limits.signals else None
                    heappush(open_, (-chance * share, order, parent, token, below, signal))
        if not open_ or len(drafted) >= limits.nodes:
            return Guess(tuple(drafted), tuple(parents), score, tuple(signals))
        negative, _, above, token, here, signal = heappop(open_)
        drafted.append(token)
        if signal:
            signals.append(signal)
        parents.append(above)
        parent, chance = len(drafted), -negative
        level = _level(parents, parent)
        score += chance


def _level(parents: Sequence[int], node: int) -> int:
    """Depth of a node; node n's parent is parents[n - 1]."""
    level = 0
    while node:
        node, level = parents[node - 1], level + 1
    return level


def _continuations(tokens: Sequence[int], places: Sequence[int]) -> list[tuple[int, list[int], float]]:
    """The tokens that stand at these places, most frequent first: (token, places after it, share)."""
    end = len(tokens)
    seen = [(tokens[place], place + 1) for place in places if place < end]
    groups: dict[int, list[int]] = {token: [] for token, _ in seen}
    for token, after in seen:
        groups[token].append(after)
    total = len(seen) - len(groups.pop(BORDER, ()))
    if len(groups) == 1:  # by far the most frequent case
        return [(token, after, 1.0) for token, after in groups.items()]
    ranked = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [(token, after, len(after) / total) for token, after in ranked]
