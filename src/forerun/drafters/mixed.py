"""Lookups and one model in one request: each step the longer guess that is worth its price.

Lookups cost nothing, so all are asked. What a guess of so many tokens has lately been worth is counted, for each
sequence, and so is the model's. A lookup that promises enough goes alone, and the step saves the model's time; else the
model drafts, and the best lookup joins its tree as one more branch: whichever is right is kept, up to where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from forerun.core.draft import Draft, Tree, Verdict
from forerun.core.errors import SpecError
from forerun.core.noise import Noise, Part
from forerun.core.plan import Plan
from forerun.core.protocols import Drafter
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.drafters.first_of import CascadeOptions, FirstOf, lesser, runs_model
from forerun.drafters.ranges import number

_KEEPS = 0.95
"""Share of a mean's weight that a later observation leaves."""


@dataclass(frozen=True, slots=True)
class MixedOptions(CascadeOptions):
    """How to choose. SpecError for values out of range."""

    margin: float = 1.0
    """A lookup goes alone where it promises at least so many times what the model has lately given."""

    def __post_init__(self) -> None:
        number(self, "margin", 0.0, 256.0)


@dataclass(slots=True)
class _Mean:
    """A mean that forgets, from a first opinion that weighs `weight` observations."""

    value: float
    weight: float = 2.0

    def hear(self, value: float) -> None:
        self.weight = self.weight * _KEEPS + 1
        self.value += (value - self.value) / self.weight


@dataclass(slots=True)
class _Worth:
    """Tokens that stood: of lookup i's guesses of n tokens, and of the model's trees."""

    lookups: dict[tuple[int, int], _Mean] = field(default_factory=dict)
    model: _Mean = field(default_factory=lambda: _Mean(1.0))

    def lookup(self, i: int, length: int) -> _Mean:
        """Until anything was seen, half of a guess is believed."""
        return self.lookups.setdefault((i, length), _Mean(length / 2))


@dataclass(slots=True)
class _Asked:
    """What was said for one sequence in this step: each lookup's chain, and the model's tree."""

    chains: list[tuple[int, ...]]
    tree: Tree | None = None


class Mixed(FirstOf):
    """All of `drafters` but the last are lookups, whose trees are chains; the last is a model.

    Trees that were drawn by chance take no branch besides their own: the model's stands alone then. SpecError for a
    drafter before the last that runs a model itself.
    """

    name = "mixed"
    Options: type = MixedOptions

    def __init__(
        self,
        drafters: Sequence[Drafter],
        plans: Sequence[Plan] | None = None,
        options: MixedOptions | None = None,
    ) -> None:
        super().__init__(drafters, plans)
        if len(drafters) < 2:
            raise SpecError(f"mixed needs a lookup and a model, got {len(drafters)} drafter")
        if odd := [drafter.name for drafter in drafters[:-1] if runs_model(drafter)]:
            raise SpecError(f"mixed asks lookups first and one model last, {odd[0]} is no lookup: name it last")
        self._margin = (options or MixedOptions()).margin
        self._worth: dict[Seq, _Worth] = {}
        self._asked: dict[Seq, _Asked] = {}

    def begin(self, seq: Seq) -> None:
        """All begin; nothing is known yet."""
        super().begin(seq)
        self._worth[seq] = _Worth()

    def end(self, seq: Seq) -> None:
        """All end."""
        super().end(seq)
        self._worth.pop(seq, None)
        self._asked.pop(seq, None)

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """The lookups' guesses, and where they promise too little the model's tree with the best of them in it."""
        asked = [_Asked([]) for _ in seqs]
        for drafter, own in zip(self.drafters[:-1], self.plans[:-1], strict=True):
            for said, tree in zip(asked, drafter.draft(seqs, lesser(plan, own), noise).trees, strict=True):
                said.chains.append(_chain(tree))
        self._asked = dict(zip(seqs, asked, strict=True))
        best = [self._best(seq) for seq in seqs]
        left = [b for b, seq in enumerate(seqs) if not self._goes_alone(seq, best[b])]
        trees = [Tree.chain(seq.last, asked[b].chains[best[b]]) for b, seq in enumerate(seqs)]
        if left:
            drawn = self.drafters[-1].draft([seqs[b] for b in left], lesser(plan, self.plans[-1]), Part(noise, left))
            for b, tree in zip(left, drawn.trees, strict=True):
                asked[b].tree = tree
                trees[b] = joined(tree, asked[b].chains[best[b]], plan)
        return Draft(tuple(trees))

    def _goes_alone(self, seq: Seq, i: int) -> bool:
        """Whether the guess of lookup i promises enough for the model not to be asked."""
        promise = self._promise(seq, i)
        return promise > 0 and promise >= self._margin * self._worth[seq].model.value

    def _best(self, seq: Seq) -> int:
        """The lookup that promises most, the first among equals."""
        return max(range(len(self.drafters) - 1), key=lambda i: (self._promise(seq, i), -i))

    def _promise(self, seq: Seq, i: int) -> float:
        length = len(self._asked[seq].chains[i])
        return self._worth[seq].lookup(i, length).value if length else 0.0

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """All hear; each guess that was made is counted, whether it went to the target or not."""
        for seq, said in zip(seqs, verdict.emitted(draft), strict=True):
            asked, worth = self._asked.pop(seq, None), self._worth[seq]
            if asked is None:
                continue
            for i, chain in enumerate(asked.chains):
                if chain:
                    worth.lookup(i, len(chain)).hear(_common(chain, said))
            if asked.tree is not None:
                worth.model.hear(_reach(asked.tree, said))
        super().accept(seqs, draft, rows, verdict)


def joined(tree: Tree, chain: Sequence[int], plan: Plan) -> Tree:
    """`tree` with `chain` as one more branch, within the nodes and the width of `plan`. What goes for it are the tree's
    last ranks: first children of first children stay longest. A tree that was drawn by chance stays as it is."""
    if tree.drawn or not chain:
        return tree
    if len(tree) == 1:
        return Tree.chain(tree.tokens[0], chain[: plan.nodes])
    here, shared = 0, 0
    children = tree.children()
    for token in chain:  # the part that the tree has too
        same = [node for node in children[here] if tree.tokens[node] == token]
        if not same:
            break
        here, shared = same[0], shared + 1
    rest = chain[shared : shared + max(1, plan.nodes // 2)]
    if not rest or (plan.width == 1 and children[here]):
        return tree
    crowded = children[here][-1] if len(children[here]) == plan.width else -1
    kept = {0, *tree.path(here)}
    for node in _by_rank(children):
        if tree.parents[node] in kept and node != crowded and len(kept) - 1 + len(rest) < plan.nodes:
            kept.add(node)
    rest = rest[: plan.nodes - len(kept) + 1]
    order = sorted(kept)
    new = {node: place for place, node in enumerate(order)}
    parents = [-1, *(new[tree.parents[node]] for node in order[1:])]
    parents += [new[here], *range(len(order), len(order) + len(rest) - 1)] if rest else []
    signals = {new[node]: signal for node, signal in tree.signals.items() if node in new}
    return Tree((*(tree.tokens[node] for node in order), *rest), tuple(parents), tree.law, {}, signals)


def _by_rank(children: Sequence[Sequence[int]]) -> list[int]:
    """All nodes but the root by the ranks on their paths: fewer steps aside come earlier, parents before children."""
    aside = {0: (0, 0)}
    for node, below in enumerate(children):
        for rank, child in enumerate(below):
            aside[child] = (aside[node][0] + rank, aside[node][1] + 1)
    return sorted(list(aside)[1:], key=lambda node: (*aside[node], node))


def _chain(tree: Tree) -> tuple[int, ...]:
    """A lookup's guess, of a tree the branch of first children."""
    if tree.is_chain:
        return tree.tokens[1:]
    tokens, children, node = [], tree.children(), 0
    while children[node]:
        node = children[node][0]
        tokens.append(tree.tokens[node])
    return tuple(tokens)


def _common(chain: Sequence[int], said: Sequence[int]) -> int:
    """How many tokens of `chain` stand."""
    count = 0
    for guess, token in zip(chain, said, strict=False):
        if guess != token:
            break
        count += 1
    return count


def _reach(tree: Tree, said: Sequence[int]) -> int:
    """How many tokens of `said` the tree has from its root on."""
    node, children = 0, tree.children()
    for depth, token in enumerate(said):
        found = [child for child in children[node] if tree.tokens[child] == token]
        if not found:
            return depth
        node = found[0]
    return len(said)
