"""The target's own word, wrong now and then: a drafter for tests in which both accepting and refusing must happen.

A perfect drafter never sees a refusal and a bad one never an acceptance; a fault hides in whichever is missing. Which
guesses are wrong depends on the position and the seed alone, so a run repeats itself in any batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forerun.core.draft import LAWS, Draft, Law, Tree, Verdict
from forerun.core.errors import SpecError, unknown
from forerun.core.noise import Noise, draft_slot, uniform
from forerun.core.plan import Plan
from forerun.core.rows import Rows, edit
from forerun.core.seq import Seq
from forerun.core.vocabulary import shape
from forerun.testing.toy import NextLaw


class NoisyDrafter:
    """Drafts what a target of this law would say, each guess wrong with chance `wrong` (0..1).

    With a plan of width 1 it makes chains, else trees of random shape. `kind` is the law of its trees: `chosen` says
    the likeliest token (or another); `sampled` and `distinct` draw from q, the target's row mixed with a share `wrong`
    of a random one. Greedy requests get `chosen` trees.
    """

    name = "noisy"
    taps: tuple[int, ...] = ()

    def __init__(self, law: NextLaw, wrong: float = 0.4, seed: int = 0, kind: Law = "chosen") -> None:
        if not 0.0 <= wrong <= 1.0:
            raise SpecError(f"wrong must be a chance from 0 to 1, got {wrong!r}")
        if kind not in LAWS:
            raise unknown("law", kind, LAWS)
        self.laws: frozenset[Law] = frozenset({"chosen", kind})
        self._law = law
        self._wrong = wrong
        self._seed = seed
        self._kind = kind

    def begin(self, seq: Seq) -> None:
        """Nothing is kept."""

    def read(self, rows: Rows) -> None:
        """No taps."""

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """A tree for each sequence."""
        return Draft(tuple(self._tree(seq, b, plan, noise) for b, seq in enumerate(seqs)))

    def _tree(self, seq: Seq, b: int, plan: Plan, noise: Noise) -> Tree:
        """Breadth first, until the plan's nodes are used up."""
        tokens, parents, q = [seq.last], [-1], dict[int, Tensor]()
        paths: list[list[int]] = [[]]
        law: Law = "chosen" if seq.params.greedy else self._kind
        node = 0
        while node < len(tokens) <= plan.nodes:
            path = paths[node]
            if len(path) < min(plan.depth, seq.room) and not seq.stop_ids.intersection(path):
                count = min(plan.nodes + 1 - len(tokens), self._children(seq, node, plan.width))
                if law == "chosen":
                    below = self._say(seq, path, count)
                else:
                    q[node] = self._mixed(seq, path)
                    below = _draw(q[node], count, law, noise, b, (len(seq) - 1, node))
                tokens += below
                parents += [node] * len(below)
                paths += [[*path, token] for token in below]
            node += 1
        return Tree(tuple(tokens), tuple(parents), law, q)

    def _children(self, seq: Seq, node: int, width: int) -> int:
        return 1 + int(width * uniform(self._seed, (0, len(seq), node)))

    def _say(self, seq: Seq, path: Sequence[int], count: int) -> list[int]:
        """The likeliest token or, with chance `wrong`, another; then its neighbours by id."""
        row = self._row(seq, path)
        size = row.shape[0]
        token = int(row.argmax())
        if uniform(self._seed, (1, len(seq) + len(path))) < self._wrong:
            token += 1 + int((size - 1) * uniform(self._seed, (2, len(seq) + len(path))))
        return [(token + i) % size for i in range(min(count, size))]

    def _mixed(self, seq: Seq, path: Sequence[int]) -> Tensor:
        """q [V]: mostly what the target would draw from."""
        row = self._row(seq, path)
        support = shape(row, seq.params)
        p = support.weights
        if support.ids is not None:
            p = torch.zeros_like(row).scatter_(0, support.ids, support.weights)
        position = len(seq) + len(path)
        other = torch.tensor([uniform(self._seed, (3, position, token)) for token in range(row.shape[0])]).to(p)
        return (1.0 - self._wrong) * p + self._wrong * other / other.sum()

    def _row(self, seq: Seq, path: Sequence[int]) -> Tensor:
        """Logits [V] as the request's parameters edit them."""
        return edit(self._law([*seq.tokens, *path]).clone(), seq, path)

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """Nothing is learnt."""

    def end(self, seq: Seq) -> None:
        """Nothing is kept."""


def _draw(q: Tensor, count: int, law: Law, noise: Noise, b: int, key: tuple[int, int]) -> list[int]:
    """`count` tokens of q [V], or as many as there are; each `distinct` one leaves the urn."""
    if law == "distinct":
        count = min(count, int((q > 0).sum()))
    drawn: list[int] = []
    for rank in range(count):
        drawn.append(noise.pick(b, draft_slot(*key, rank), q))
        if law == "distinct":
            q = q.index_fill(0, torch.tensor(drawn[-1:], device=q.device), 0.0)
    return drawn
