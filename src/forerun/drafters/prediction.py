"""Drafts from an answer that the caller expects: an edited file is mostly the old file.

A pointer walks along `params.prediction` with the answer. Where they part it is lost, and finds its place again as soon
as the newest tokens occur in the prediction: the longest match, among equals the nearest at or after where it was.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from forerun.core.draft import Draft, Law, Tree, Verdict
from forerun.core.noise import Noise
from forerun.core.plan import Plan
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.drafters.index import agreement
from forerun.drafters.ranges import number, ordered, whole


@dataclass(frozen=True, slots=True)
class PredictionOptions:
    """How to find the place again. SpecError for values out of range."""

    min: int = 1
    """Tokens that must agree before drafting resumes, 1..16."""
    max: int = 32
    """Tokens that are compared; longer matches count as this long."""
    candidates: int = 32
    """Places looked at on either side of the old one."""
    factor: float = 4.0
    """After m tokens in agreement at most factor * m are drafted; the beginning is trusted fully."""

    def __post_init__(self) -> None:
        whole(self, "min", 1, 16)
        whole(self, "max", 1, 1024)
        ordered(self, "min", "max")
        whole(self, "candidates", 1, 4096)
        number(self, "factor", 0.0, 256.0)


@dataclass(slots=True)
class _Pointer:
    """Where one answer stands in its prediction: the token expected next is `tokens[at]`."""

    tokens: tuple[int, ...]
    at: int = 0
    read: int = 0
    """Output tokens walked along."""
    agreed: int = 256
    """Tokens in agreement before `at`; 0 is lost."""
    ends: dict[int, list[int]] = field(default_factory=dict)
    """For each token, where it stands."""


class PredictionDrafter:
    """Chains from the request's own prediction; the root alone where there is none."""

    name = "prediction"
    Options = PredictionOptions
    laws: frozenset[Law] = frozenset({"chosen"})
    taps: tuple[int, ...] = ()

    def __init__(self, options: PredictionOptions | None = None) -> None:
        self.options = options or PredictionOptions()
        self._pointers: dict[Seq, _Pointer] = {}

    def begin(self, seq: Seq) -> None:
        """Index the prediction, if the request brought one."""
        expected = seq.params.prediction
        if expected and not isinstance(expected, str):  # the engine has made ids of texts
            pointer = self._pointers[seq] = _Pointer(expected)
            for end, token in enumerate(pointer.tokens):
                pointer.ends.setdefault(token, []).append(end)

    def read(self, rows: Rows) -> None:
        """No taps."""

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """A chain for each sequence, or its root."""
        return Draft(tuple(self._chain(seq, plan) for seq in seqs))

    def _chain(self, seq: Seq, plan: Plan) -> Tree:
        pointer = self._pointers.get(seq)
        if pointer is None:
            return Tree.root(seq.last)
        self._walk(pointer, seq)
        reach = int(self.options.factor * pointer.agreed + 1e-6)
        count = min(plan.depth, plan.nodes, seq.room, reach)
        return Tree.chain(seq.last, pointer.tokens[pointer.at : pointer.at + count])

    def _walk(self, pointer: _Pointer, seq: Seq) -> None:
        """Follow the tokens that came since; if the answer parted from the prediction, look for the place."""
        for token in seq.tokens[seq.prompt_len + pointer.read :]:
            pointer.read += 1
            if pointer.agreed and pointer.tokens[pointer.at : pointer.at + 1] == (token,):
                pointer.at += 1
                pointer.agreed += 1
            else:
                pointer.agreed = 0
        if not pointer.agreed:
            self._find(pointer, seq)

    def _find(self, pointer: _Pointer, seq: Seq) -> None:
        options = self.options
        ends = pointer.ends.get(seq.last, [])
        middle = bisect_left(ends, pointer.at)
        near = ends[middle : middle + options.candidates]
        near += ends[max(0, middle - options.candidates) : middle][::-1]
        limit = min(options.max, len(seq.output))
        found = [(end + 1, agreement(pointer.tokens, end + 1, seq.tokens, limit)) for end in near]
        at, agreed = max(found, key=lambda match: match[1], default=(0, 0))
        if agreed >= options.min:
            pointer.at, pointer.agreed = at, agreed

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """Nothing to learn: the next draft walks along the grown text."""

    def end(self, seq: Seq) -> None:
        """Forget the prediction."""
        self._pointers.pop(seq, None)
