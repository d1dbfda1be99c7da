"""Chance, as two questions that a verifier or a drafter may ask.

Every draw has a key: the sequence, the position and a slot that says what it is for. The answer depends on nothing
else, so a seeded request draws the same in any batch, and the token that the target itself would draw at a position
is the same with speculation on or off. Keys of draft draws and of acceptance tests hold the root's position too, which
no two steps of a sequence share: reusing a drafted position's uniform would correlate a step with its predecessor.

Asking (rather than handing out numbers) is what lets `forerun.testing` answer with *every* outcome and its
probability: losslessness is then enumerated, not estimated, through the very code that serves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forerun.core.errors import BrokenInvariant

Slot = tuple[int, ...]

TARGET = 0  # the target's own draw at a position
DRAFT = 1  # the drafter's draw below a node
ACCEPT = 2  # the test of a drafted node

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15  # splitmix64's
_STEP64 = np.uint64(_STEP)
_MIXING = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)
_SPARE_BITS = np.uint64(12)

Race = Callable[[Tensor, int, Tensor | None], int]
"""How a seeded draw is made: (weights [n], key, ids [n] or None) -> index. All of them agree with `race` below."""


class Noise(Protocol):
    """Answers to random questions about sequence `b` of the batch, each key asked at most once."""

    def accept(self, b: int, slot: Slot, chance: float) -> bool:
        """True with probability `chance` (values outside [0, 1] are clipped)."""
        ...

    def pick(self, b: int, slot: Slot, weights: Tensor, ids: Tensor | None = None) -> int:
        """An index drawn in proportion to non-negative `weights` [n], which need not sum to one.

        `ids` [n] are the tokens that the weights are of, 0..n-1 if not given.
        """
        ...

    def foresee(self, b: int, position: int, weights: Tensor, ids: Tensor | None = None) -> Tensor:
        """How fast each token comes in the target's own draw at `position` if these are the target's weights.

        Float64 [n]: the largest is what would be drawn, and the further it leads, the less depends on the weights. For
        guesses only: the closer the weights are to the target's, the more often it is what the target draws.
        """
        ...


def target_slot(position: int) -> Slot:
    """Key of the target's draw of the token at `position`, whatever was drafted there."""
    return (TARGET, position)


def draft_slot(root: int, node: int, rank: int = 0) -> Slot:
    """Key of the drafter's `rank`-th draw below `node` in the step whose root stands at position `root`."""
    return (DRAFT, root, node, rank)


def accept_slot(root: int, node: int) -> Slot:
    """Key of the acceptance test of `node` in the step whose root stands at position `root`."""
    return (ACCEPT, root, node)


class SeededNoise:
    """The noise that serves: every answer is hashed from (seed, slot), and for a draw from the token too.

    A draw is a race (Gumbel's trick): token i arrives after an exponential time E_i / w_i and the first one wins. So a
    rounding error in the weights changes the winner only where two tokens arrive at the same moment. Cutting [0, 1)
    into 49,152 intervals would let it move every border, and the draws that fall among the thin ones with them.
    """

    __slots__ = ("_race", "_seeds")

    def __init__(self, seeds: Sequence[int], how: Race | None = None) -> None:
        self._seeds = seeds
        self._race = how or race

    def accept(self, b: int, slot: Slot, chance: float) -> bool:
        return uniform(self._seeds[b], slot) < chance

    def pick(self, b: int, slot: Slot, weights: Tensor, ids: Tensor | None = None) -> int:
        return self._race(weights, hashed(self._seeds[b], slot), ids)

    def foresee(self, b: int, position: int, weights: Tensor, ids: Tensor | None = None) -> Tensor:
        return torch.from_numpy(paces(weights, hashed(self._seeds[b], target_slot(position)), ids))


class Part:
    """The noise of a part of the batch: sequence i of the part is sequence `batch[i]`."""

    def __init__(self, noise: Noise, batch: Sequence[int]) -> None:
        self._noise = noise
        self._batch = batch

    def accept(self, b: int, slot: Slot, chance: float) -> bool:
        return self._noise.accept(self._batch[b], slot, chance)

    def pick(self, b: int, slot: Slot, weights: Tensor, ids: Tensor | None = None) -> int:
        return self._noise.pick(self._batch[b], slot, weights, ids)

    def foresee(self, b: int, position: int, weights: Tensor, ids: Tensor | None = None) -> Tensor:
        return self._noise.foresee(self._batch[b], position, weights, ids)


def hashed(seed: int, slot: Slot) -> int:
    """64 bits, a pure function of (seed, slot)."""
    state = seed & _MASK
    for value in slot:
        state = _mix((state ^ _mix(value + _STEP)) + _STEP)
    return _mix(state)


def uniform(seed: int, slot: Slot) -> float:
    """A float in [0, 1) with 53 random bits, a pure function of (seed, slot)."""
    return (hashed(seed, slot) >> 11) * 2.0**-53


def race(weights: Tensor, key: int, ids: Tensor | None = None) -> int:
    """The index of the first to arrive: exponential times by (key, token id) over weights; never one of weight zero."""
    found = paces(weights, key, ids)
    first = int(found.argmax()) if len(found) else -1
    if first < 0 or not 0.0 < found[first] < float("inf"):
        raise BrokenInvariant("cannot draw: no token has a positive, finite weight here")
    return first


def paces(weights: Tensor, key: int, ids: Tensor | None = None) -> NDArray[np.float64]:
    """How fast each token comes [n]: its weight over an exponential time by (key, token id).

    In numpy, for weights on any device: a support is mostly some tens of tokens, and torch takes longer to start each
    of these operations than numpy to finish it.
    """
    rates = weights.to("cpu", torch.float64).numpy()
    if ids is None:
        bits = np.arange(len(rates), dtype=np.uint64) * _STEP64
    else:
        bits = ids.cpu().numpy().view(np.uint64) * _STEP64
    bits += np.uint64(key)
    for shift, factor in _MIXING:
        bits ^= bits >> shift
        bits *= factor
    bits ^= bits >> _LAST_SHIFT
    bits >>= _SPARE_BITS
    times = -np.log((bits + 0.5) * 2.0**-52)  # of numbers inside (0, 1)
    found: NDArray[np.float64] = rates / times
    return found


def fresh_seed() -> int:
    """A 64-bit seed from the operating system, for requests that name none."""
    return int.from_bytes(os.urandom(8), "little")


def child_seed(seed: int, index: int) -> int:
    """The seed of the `index`-th of n answers to one request; the first keeps the request's own."""
    return seed & _MASK if index == 0 else _mix((seed & _MASK) ^ _mix(index))


def _mix(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
