"""One sequence's tree while a model grows it, level by level.

Chosen trees are EAGLE-2's (Li et al. 2406.16858): the likeliest nodes of a level get children, and of all that were
seen the likeliest are kept at the end. With a static shape it says instead which ranks of which nodes are grown.
In foreseen ones a node's children are the first in the race that will draw the target's token, run with the model's
weights (Daliri et al. 2408.07978), and a child is as likely as its pace is large beside all others': without the times
of the race that is the model's own probability. Drawn trees (`sampled`, `distinct`) keep every node that was drawn,
with the row it was drawn from: how many children a node gets, and whether it gets any, is settled before they are
drawn, so the law is not bent. Of all only the nodes below which more is to grow are fed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

import torch
from torch import Tensor

from forerun.core.draft import Law, Signal, Tree
from forerun.core.errors import said
from forerun.core.noise import Noise, draft_slot
from forerun.core.plan import Plan
from forerun.core.rows import DeadEnd, Rows
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.costs.prices import FREE_WORTH, Worth
from forerun.trees.shape import Shape

CONTENDERS = 64
"""Likeliest tokens that are looked at where the target's draw is foreseen; the rest seldom wins."""


class Growth:
    """A tree under `seq.last`, `b` being the sequence's place in the batch that the noise knows.

    Of trees that are not drawn, guesses are left out whose path is less likely than their row costs (`worth`). A level
    is grown below a guess if what it promises, that this path stands and one more step as likely as its own steps, is
    worth the level and a row.
    Two numberings meet here: nodes (all that were drawn or considered) and fed nodes (those the model has read).
    """

    def __init__(
        self,
        seq: Seq,
        b: int,
        depth: int,
        width: int,
        plan: Plan,
        law: Law,
        shape: Shape | None = None,
        worth: Worth = FREE_WORTH,
    ) -> None:
        self.seq = seq
        self.law: Law = "chosen" if seq.params.greedy else law
        self._drawn = self.law in ("sampled", "distinct")
        self.frontier: list[int] = [0] if depth > 0 and plan.nodes else []
        self._b = b
        self._shape = shape
        self._ranks: dict[int, tuple[int, ...]] = {0: ()}  # with a shape: each node's path of ranks
        self._width = width
        self._limit = plan.nodes
        self._worth = worth if shape is None else FREE_WORTH
        self._confidence = plan.confidence
        self._levels = min(depth, plan.nodes) if shape is None else min(depth, shape.depth)
        self._tokens = [seq.last]
        self._parents = [-1]
        self._scores = [0.0]  # log-probability of the path
        self._depths = [0]
        self._q: dict[int, Tensor] = {}
        self._signals: dict[int, Signal] | None = {} if plan.signals else None
        self._fed: dict[int, int] = {}
        self._fed_tree = Tree((), ())

    @property
    def levels(self) -> int:
        """How many levels are still to be grown."""
        return self._levels

    @property
    def feeds(self) -> int:
        """Most nodes that will be fed, root included."""
        if self._shape is not None:
            return sum(len(path) < self._levels for path in self._shape.children)
        return 1 + self._width * (self._levels - 1)

    def item(self, held: int) -> Item:
        """Work that feeds the frontier; what the model does not hold of the sequence is fed before it."""
        seen = len(self._fed)
        for node in self.frontier:
            self._fed[node] = len(self._fed)
        tokens = tuple(self._tokens[node] for node in self._fed)
        parents = (-1, *(self._fed[self._parents[node]] for node in self._fed if node))
        self._fed_tree = Tree(tokens, parents)
        return Item(self.seq, held, len(self.seq) - 1, self._fed_tree, seen)

    def on_its_own(self) -> Item:
        """`item` for what drafts with a memory that the sequence's tokens do not number: no certain tokens."""
        return self.item(len(self.seq) - 1)

    def grow(self, rows: Rows, i: int, noise: Noise) -> None:
        """Children of the frontier from its rows, those of item i; then the next frontier."""
        first = len(self._tokens)
        left = self._limit - first + 1
        if self._shape is None:
            left = -(-left // self._levels)  # a level's share of the nodes still to be drawn
        for node in self.frontier:
            old = len(self._tokens)
            try:
                if not self._drawn:
                    self._choose(rows, i, node, noise)
                elif left > 0:
                    left -= self._draw(rows, i, node, min(self._room(node), left), noise)
            except DeadEnd:
                pass  # a path that is only guessed; no fault of an answer that does not go there
            except Exception as error:  # by the node's own row: no draw of a child has a say in it
                if self.seq.error is None:  # else its hook failed, which is no fault of the model's
                    self.seq.drop(said(error))
            if self._signals is not None and len(self._tokens) > old:
                self._judge(rows.edited(i, self._fed[node]), range(old, len(self._tokens)))
        self._levels -= 1
        self.frontier = self._worth_feeding(range(first, len(self._tokens))) if self._levels else []

    def _choose(self, rows: Rows, i: int, node: int, noise: Noise) -> None:
        """The likeliest children of `node`; if draws are foreseen, those that would come first."""
        fed, width = self._fed[node], self._room(node)
        if self.law == "foreseen":
            self._foresee(rows, i, node, noise, width)
        else:
            for token, value in zip(*rows.likeliest(i, fed, width), strict=True):
                self._add(token, node, value)

    def _room(self, node: int) -> int:
        """Most children of `node`."""
        return self._width if self._shape is None else self._shape.children[self._ranks[node]]

    def _foresee(self, rows: Rows, i: int, node: int, noise: Noise, width: int) -> None:
        """The first `width` in the target's draw below `node` if its row were ours."""
        fed = self._fed[node]
        field = rows.contenders(i, fed, CONTENDERS)
        paces = noise.foresee(self._b, rows.position(i, fed), field.weights, field.ids).numpy()
        shares = paces / paces.sum()
        for place in (-shares).argsort(kind="stable")[:width]:
            if shares[place] > 0:
                self._add(field.token(int(place)), node, log(shares[place]))

    def _draw(self, rows: Rows, i: int, node: int, count: int, noise: Noise) -> int:
        """Draw up to `count` children of `node`; returns how many there were to draw."""
        row = left = rows.probs(i, self._fed[node])
        self._q[node] = row
        if self.law == "distinct":
            count = min(count, int((row > 0).sum()))
        for rank in range(count):
            token = noise.pick(self._b, draft_slot(len(self.seq) - 1, node, rank), left)
            self._add(token, node, log(float(row[token])))
            if self.law == "distinct" and rank + 1 < count:
                left = left.clone()
                left[token] = 0.0
        return count

    def _judge(self, row: Tensor, nodes: Sequence[int]) -> None:
        """Note what the model's `row` [V] says of these nodes at temperature 1, whatever the request's: how sure the
        model is, not how the draw was. Penalties and masks of the request are in the row."""
        assert self._signals is not None
        logs = torch.log_softmax(row.float(), -1)
        entropy = float(torch.special.entr(logs.exp()).sum())
        for node in nodes:
            self._signals[node] = Signal(exp(float(logs[self._tokens[node]])), entropy)

    def _add(self, token: int, parent: int, value: float) -> None:
        if self._shape is not None:
            rank = self._parents.count(parent)
            self._ranks[len(self._tokens)] = (*self._ranks[parent], rank)
        self._tokens.append(token)
        self._parents.append(parent)
        self._depths.append(self._depths[parent] + 1)
        self._scores.append(self._scores[parent] + value)

    def _worth_feeding(self, level: Sequence[int]) -> list[int]:
        """The likeliest nodes of a level that more may grow below: not what ends the answer, nor a twin."""
        first = {(self._parents[node], self._tokens[node]): node for node in reversed(level)}
        alive = [
            node for node in sorted(first.values()) if self._tokens[node] not in self.seq.stop_ids and self._pays(node)
        ]
        if self._shape is not None:
            return [node for node in alive if self._ranks[node] in self._shape.children]
        return sorted(alive, key=self._rank)[: self._width]

    def _pays(self, node: int) -> bool:
        """Whether a level below this node is worth its price."""
        chance, level = exp(self._scores[node]), self._worth.level
        promised = chance * exp(self._scores[node] / self._depths[node])
        row = 0.0 if self._drawn else self._worth.row(2)
        return chance >= self._confidence and (not level or promised >= level + row)

    def _rank(self, node: int) -> tuple[float, int]:
        """Likeliest first, older first among equals: a parent always stands before its children."""
        return -self._scores[node], node

    def tree(self) -> Tree:
        """What is drafted: everything drawn, or of what was considered the likeliest that the plan has room for."""
        nodes = list(range(len(self._tokens)))
        if not self._drawn:
            ranked = sorted(nodes, key=self._rank)[: self._limit + 1]
            dear = (i for i, node in enumerate(ranked) if i and exp(self._scores[node]) < self._worth.row(i + 1))
            nodes = sorted(ranked[: next(dear, len(ranked))])
        new = {node: place for place, node in enumerate(nodes)}
        parents = (-1, *(new[self._parents[node]] for node in nodes[1:]))
        law = self.law if len(nodes) > 1 else "chosen"
        signals = {new[node]: self._signals[node] for node in nodes[1:]} if self._signals else {}
        tokens = tuple(self._tokens[node] for node in nodes)
        return Tree(tokens, parents, law, self._q if self._drawn else {}, signals)

    def fed_path(self, tokens: Sequence[int]) -> list[int]:
        """The fed nodes (in feeding order) along these tokens below the root, as far as they go."""
        tree, here = self._fed_tree, 0
        for token in tokens:
            below = [n for n in range(1, len(tree)) if tree.parents[n] == here and tree.tokens[n] == token]
            if not below:
                break
            here = below[0]
        return tree.path(here)
