"""Every outcome and its probability: losslessness is enumerated, not estimated.

Code that takes its chance from a `Noise` can be run once for each answer that chance could give. So a test compares
distributions to the last bit or so, through the very code that serves, and has no bad luck. The drafter's draws are
asked through the same noise (`table_draft`), so the joint law of drafting and verifying is what is enumerated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from forerun.core.draft import Law, Tree
from forerun.core.errors import BrokenInvariant
from forerun.core.noise import Noise, Slot, draft_slot

FORESIGHT = 3  # the first number of a slot that no draw has

T = TypeVar("T", bound=Hashable)

Table = Callable[[tuple[int, ...]], Tensor]
"""All tokens so far -> probabilities [V] of the next one."""

Shape = tuple["Shape", ...]
"""A tree's shape: for each child its own shape. `()` is a leaf."""


def outcomes(run: Callable[[Noise], T]) -> dict[T, float]:
    """What `run` can return, each with its probability, by asking it again for every answer of chance.

    `run` must depend on its noise alone. Raises BrokenInvariant if it does not, if it asks one key twice (two draws
    that should be independent would be one and the same), or with a chance or weights that are no probabilities.
    """
    law: dict[T, float] = {}
    noise = ExactNoise()
    while True:
        result = run(noise)
        law[result] = law.get(result, 0.0) + noise.probability()
        if not noise.next():
            return law


@dataclass(slots=True)
class _Question:
    """One question of a run and the answers still to be given to it, the current one first."""

    key: tuple[int, Slot]
    answers: list[tuple[int, float]]


class ExactNoise:
    """A noise that gives every answer in turn: `next` moves on to the following run, False after the last.

    Answers of probability 0 are never given.
    """

    def __init__(self) -> None:
        self._questions: list[_Question] = []
        self._asked: set[tuple[int, Slot]] = set()

    def accept(self, b: int, slot: Slot, chance: float) -> bool:
        if math.isnan(chance):
            raise BrokenInvariant(f"an acceptance test was asked with chance {chance} at slot {slot}")
        chance = min(1.0, max(0.0, chance))
        return bool(self._answer((b, slot), [(1, chance), (0, 1.0 - chance)]))

    def pick(self, b: int, slot: Slot, weights: Tensor, ids: Tensor | None = None) -> int:
        values: list[float] = weights.double().tolist()
        total = math.fsum(values)
        if not (0.0 < total < math.inf and min(values) >= 0.0):
            raise BrokenInvariant(f"a draw was asked with weights {values} at slot {slot}")
        return self._answer((b, slot), [(index, value / total) for index, value in enumerate(values)])

    def foresee(self, b: int, position: int, weights: Tensor, ids: Tensor | None = None) -> Tensor:
        """Any possible token first, whatever the target will draw: what matching emits must not depend on it."""
        possible: list[int] = weights.nonzero().flatten().tolist()
        answers = [(index, 1 / len(possible)) for index in possible]
        paces = weights.double()
        paces[self._answer((b, (FORESIGHT, len(self._asked))), answers)] += paces.sum()
        return paces

    def probability(self) -> float:
        """The probability of all answers that the run was given."""
        return math.prod(question.answers[0][1] for question in self._questions)

    def next(self) -> bool:
        """Give the last question that has one its next answer, and forget those after it."""
        if len(self._asked) != len(self._questions):
            raise BrokenInvariant(
                "the run asked less than before on the same answers: it depends on more than its noise"
            )
        self._asked.clear()
        while self._questions:
            answers = self._questions[-1].answers
            answers.pop(0)
            if answers:
                return True
            self._questions.pop()
        return False

    def _answer(self, key: tuple[int, Slot], answers: list[tuple[int, float]]) -> int:
        if key in self._asked:
            raise BrokenInvariant(f"sequence {key[0]} asked slot {key[1]} twice in one run: its draws are correlated")
        index = len(self._asked)
        self._asked.add(key)
        if index == len(self._questions):
            self._questions.append(_Question(key, [answer for answer in answers if answer[1] > 0.0]))
        question = self._questions[index]
        if question.key != key:
            raise BrokenInvariant(
                f"the run asked {key} where it asked {question.key} before on the same answers: it depends on more "
                "than its noise"
            )
        return question.answers[0][0]


def widths(*widths: int) -> Shape:
    """The shape whose nodes at depth d all have `widths[d]` children; widths(1, 1, 1) is a chain."""
    shape: Shape = ()
    for width in reversed(widths):
        shape = (shape,) * width
    return shape


def table_draft(
    noise: Noise,
    tokens: Sequence[int],
    table: Table,
    shape: Shape,
    law: Law = "sampled",
    b: int = 0,
    stops: frozenset[int] = frozenset(),
) -> Tree:
    """A tree of `shape` under the last of `tokens`, its nodes drawn from `table` by the rule that `law` names.

    `chosen` takes the likeliest. A `distinct` draft has fewer children where the row has fewer possible tokens; nothing
    is drafted after one of `stops`. Nodes come level by level.
    """
    root = len(tokens) - 1
    drawn: list[int] = [tokens[-1]]
    parents, rows = [-1], {}
    contexts, shapes = [tuple(tokens)], [shape]
    for node, context in enumerate(contexts):  # grows as it goes
        if not shapes[node] or (node and drawn[node] in stops):
            continue
        rows[node] = table(context)
        siblings = _siblings(noise, b, root, node, rows[node], len(shapes[node]), law)
        for token, below in zip(siblings, shapes[node], strict=False):
            drawn.append(token)
            parents.append(node)
            contexts.append((*context, token))
            shapes.append(below)
    return Tree(tuple(drawn), tuple(parents), law, {} if law == "chosen" else rows)


def _siblings(noise: Noise, b: int, root: int, node: int, row: Tensor, count: int, law: Law) -> list[int]:
    """Up to `count` tokens below a node, in the order they came."""
    if law == "chosen":
        order: list[int] = row.argsort(descending=True, stable=True).tolist()
        return order[:count]
    left = row.clone()
    tokens: list[int] = []
    for rank in range(count):
        if not left.any():
            break
        tokens.append(noise.pick(b, draft_slot(root, node, rank), left))
        if law == "distinct":
            left[tokens[-1]] = 0.0
    return tokens
