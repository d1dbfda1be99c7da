"""How close two tokens were where two answers part: rounding can turn a near-tie, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from forerun.core.draft import Tree
from forerun.core.errors import CapacityError
from forerun.core.noise import child_seed, hashed, race, target_slot
from forerun.core.params import SamplingParams
from forerun.core.protocols import Target
from forerun.core.seq import Seq
from forerun.core.work import Item

NEAR = {"float16": 2e-2, "bfloat16": 0.25}
NEAR_FLOAT32 = 1e-3
"""Differences of logits that rounding explains, by the number format of the network."""

_CHUNK = 512
_WIDEST, _HALVINGS = 64.0, 60


def margin(target: Target, tokens: Sequence[int], ours: int, theirs: int, params: Mapping[str, Any]) -> dict[str, Any]:
    """About two tokens after `tokens` (prompt and common text), in the target's own row there.

    `logits` is the difference of the two logits; `decided` that of what decided: the same for greedy, and else by how
    much the log-odds (before any filter) would have to change for the other token to win this seed's draw.
    """
    row = row_after(target, tokens).double()
    logits = float(row[ours] - row[theirs])
    decided = logits
    wanted = SamplingParams(**params)
    if not wanted.greedy:
        key = hashed(child_seed(int(params["seed"]), 0), target_slot(len(tokens)))
        decided = lead(logits / wanted.temperature, ours, theirs, key)
    near = abs(decided) <= NEAR.get(target.spec.dtype, NEAR_FLOAT32)
    return {"logits": round(logits, 6), "decided": round(decided, 6), "near_tie": near}


def lead(odds: float, ours: int, theirs: int, key: int) -> float:
    """How far `ours`, with these log-odds, was ahead of `theirs` in the race of this key; negative if it lost.

    The race itself is asked, with one weight moved until the other token wins, so that there is one meaning of a draw.
    """
    ids = torch.tensor([ours, theirs])

    def wins(handicap: float) -> bool:
        weights = torch.tensor([odds - handicap, 0.0], dtype=torch.float64).clamp(-300, 300).exp()
        return race(weights, key, ids) == 0

    low, high = -_WIDEST - abs(odds), _WIDEST + abs(odds)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if wins(middle) else (low, middle)
    return (low + high) / 2


def row_after(target: Target, tokens: Sequence[int]) -> Tensor:
    """The target's logits [V] after `tokens`, from an empty memory, with nothing drafted."""
    seq = Seq(0, tokens, SamplingParams(), target.spec.max_len + 1)
    target.begin(seq)
    try:
        if not target.reserve(seq, len(seq) - target.held(seq)):
            raise CapacityError(f"no memory for {len(seq)} tokens: give kv_tokens more")
        while (held := target.held(seq)) < len(seq) - 1:
            target.score([Item(seq, held, min(held + _CHUNK, len(seq) - 1))])
        return target.score([Item(seq, held, held, Tree.root(seq.last))]).raw(0, 0).clone()
    finally:
        target.release(seq)
