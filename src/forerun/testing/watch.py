"""Eyes on a drafter: what it asks of chance, and whether its trees are what it says they are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forerun.core.draft import Draft, Tree
from forerun.core.noise import Noise, Slot
from forerun.core.plan import Plan
from forerun.core.seq import Seq


class WatchedNoise:
    """A noise that writes down every draw, and refuses to answer a question twice."""

    def __init__(self, noise: Noise) -> None:
        self.picks: list[tuple[int, Tensor, int]] = []
        self._noise = noise
        self._asked: set[tuple[int, Slot]] = set()

    def accept(self, b: int, slot: Slot, chance: float) -> bool:
        self._once(b, slot)
        return self._noise.accept(b, slot, chance)

    def pick(self, b: int, slot: Slot, weights: Tensor, ids: Tensor | None = None) -> int:
        self._once(b, slot)
        answer = self._noise.pick(b, slot, weights, ids)
        self.picks.append((b, weights.clone(), answer))
        return answer

    def foresee(self, b: int, position: int, weights: Tensor, ids: Tensor | None = None) -> Tensor:
        return self._noise.foresee(b, position, weights, ids)

    def _once(self, b: int, slot: Slot) -> None:
        assert (b, slot) not in self._asked, f"chance was asked twice at slot {slot} of sequence {b}: the draws are one"
        self._asked.add((b, slot))


def check_draft(draft: Draft, seqs: Sequence[Seq], plan: Plan, laws: frozenset[str], vocab: int) -> None:
    """AssertionError unless each tree is within the plan, the room of its sequence and the declared laws."""
    assert len(draft) == len(seqs), f"a draft of {len(draft)} trees for {len(seqs)} sequences"
    for seq, tree in zip(seqs, draft.trees, strict=True):
        tree.check()
        children = tree.children()
        depth, widest = max(tree.depths()), max(map(len, children))
        assert tree.tokens[0] == seq.last, f"the root of {seq} is {tree.tokens[0]}, its last token {seq.last}"
        assert tree.drafted <= plan.nodes, f"{tree.drafted} nodes were drafted, the plan has {plan.nodes}"
        assert depth <= plan.depth, f"drafted to depth {depth}, the plan's is {plan.depth}"
        assert depth <= seq.room, f"drafted to depth {depth}, {seq} has room for {seq.room}"
        assert widest <= plan.width, f"a node has {widest} children, the plan's width is {plan.width}"
        assert len(tree) == 1 or tree.law in laws, f"a {tree.law!r} tree from a drafter of laws {sorted(laws)}"
        strange = [token for token in tree.tokens if not 0 <= token < vocab]
        assert not strange, f"tokens {strange} were drafted, the vocabulary is 0..{vocab - 1}"
        if tree.law != "sampled":
            for node, below in enumerate(children):
                tokens = [tree.tokens[child] for child in below]
                assert len(set(tokens)) == len(tokens), f"children of node {node} repeat a token: {tokens}"


def check_drawn(tree: Tree, b: int, picks: Sequence[tuple[int, Tensor, int]]) -> None:
    """AssertionError unless each node of a drawn tree was picked by the noise from exactly the row that it names."""
    mine = [(weights, answer) for at, weights, answer in picks if at == b]
    for node, below in enumerate(tree.children() if tree.drawn else []):
        left = tree.q[node].clone() if below else torch.ones(1)
        assert bool((left >= 0).all()), f"q of node {node} has negative probabilities"
        for child in below:
            token = tree.tokens[child]
            assert left[token] > 0, f"node {child} is token {token}, which q of node {node} calls impossible"
            drawn = [i for i, (weights, answer) in enumerate(mine) if _same(weights, answer, left, token)]
            assert drawn, f"node {child} (token {token}) was not drawn by the noise from q of node {node}"
            del mine[drawn[0]]
            if tree.law == "distinct":
                left[token] = 0.0


def _same(weights: Tensor, answer: int, row: Tensor, token: int) -> bool:
    """Whether these weights are `row` up to scale (zeros may be left out) and the answer means `token`."""
    ours, theirs = weights[weights > 0], row[row > 0]
    if ours.shape != theirs.shape or not bool(weights[answer] > 0):
        return False
    rank = int((weights[: answer + 1] > 0).sum()) == int((row[: token + 1] > 0).sum())
    return rank and torch.allclose(ours / ours.sum(), (theirs / theirs.sum()).to(ours), atol=1e-9, rtol=1e-6)
