"""The law of speculative sampling in ten lines, with the guards that floating point needs.

A node's children are offered to the target one after another; a refusal takes from the target's row what the
drafter's row covered. Leviathan et al. (2211.17192) and Chen et al. (2302.01318) for one child; SpecInfer
(2305.09781) for several drawn independently, Sequoia (2402.12374) for several without replacement. An empty
residual means that p == q, where a refusal has chance 0: the row then stands as it is, and nothing is ever
0/0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from forerun.core.draft import Law, Tree
from forerun.core.errors import BrokenInvariant


def offers(
    children: Iterable[int], tokens: Sequence[int], target: Tensor, draft: Tensor | None, law: Law
) -> Iterator[tuple[int, float, Tensor]]:
    """For each child in turn its chance of standing and the row [V] that is left if it is refused.

    `target` [V] is p and `draft` [V] is q of the children's parent (None only for `chosen`).
    """
    left, q = target, draft
    for child in children:
        token = tokens[child]
        if law == "chosen":
            q = one_hot(token, target)
        assert q is not None
        chance = min(1.0, odds(left, q, token))
        left, _ = residual(left, q)
        yield child, chance, left
        if law == "distinct":
            q = without(q, token)


def odds(p: Tensor, q: Tensor, token: int) -> float:
    """p[token] / q[token], for a token that was drawn from q.

    Raises BrokenInvariant where q gives the token no chance: it cannot have been drawn from this row.
    """
    ours, theirs = torch.stack((p[token], q[token])).tolist()
    if not theirs > 0.0:
        raise BrokenInvariant(
            f"drafted token {token} has probability {theirs} in its own draft row: q must be what it was drawn "
            "from (a 'distinct' draft must not repeat a sibling)"
        )
    if not ours >= 0.0:
        raise BrokenInvariant(f"the target's probability of token {token} is {ours}: its row is not a distribution")
    return float(ours / theirs)


def residual(p: Tensor, q: Tensor, weight: float = 1.0) -> tuple[Tensor, float]:
    """max(weight * p - q, 0) made to sum to one [V], and its mass before; p itself where nothing is left."""
    rest = (p - q if weight == 1.0 else weight * p - q).clamp_(min=0.0)
    mass = float(rest.sum())
    return (rest.div_(mass), mass) if mass > 0.0 else (p, 0.0)


def reweighed(mass: float, weight: float) -> float:
    """A node's acceptance weight after it lost a child, by the residual's mass; 0/0 is 1, and never needed."""
    total = mass + (1.0 - weight)
    return mass / total if total > 0.0 else 1.0


def without(q: Tensor, token: int) -> Tensor:
    """q once `token` is taken out, made to sum to one; zeros where nothing else was possible."""
    rest = q.clone()
    rest[token] = 0.0
    total = float(rest.sum())
    return rest.div_(total) if total > 0.0 else rest


def one_hot(token: int, like: Tensor) -> Tensor:
    """The row [V] of a token that was chosen by rule."""
    row = torch.zeros_like(like)
    row[token] = 1.0
    return row


def drafted(tree: Tree, node: int, p: Tensor) -> Tensor:
    """The row [V] that the children of `node` were drawn from, beside p in kind and place.

    Raises BrokenInvariant unless the draft brought one over the target's vocabulary, and precise enough.
    """
    q = tree.q.get(node)
    if q is None:
        raise BrokenInvariant(f"a {tree.law!r} draft brings the rows its tokens were drawn from: node {node} has none")
    if q.shape != p.shape:
        raise BrokenInvariant(f"draft row of node {node} has shape {tuple(q.shape)}, the target's {tuple(p.shape)}")
    if q.dtype not in (torch.float32, torch.float64):
        raise BrokenInvariant(
            f"draft row of node {node} is {q.dtype}, allowed float32, float64: others sum too roughly"
        )
    return q.to(p)
