"""Which of the target's words a head knows: its map from draft words to the target's ids, in whatever order."""

from __future__ import annotations

import torch
from torch import Tensor

from forerun.core.errors import LoadError

_WHOLE = (
    torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64,
)  # fmt: skip


def whole(key: str, values: Tensor) -> Tensor:
    """A map's numbers as int64 [N]; LoadError that names it if they are not whole numbers, or not in one row."""
    if values.dtype not in _WHOLE:
        raise LoadError(
            f"{key} is {str(values.dtype).removeprefix('torch.')}, whole numbers are wanted (int8 to int64, uint8 to "
            "uint64): the head is damaged, or was converted with all its tensors"
        )
    if values.ndim != 1:
        raise LoadError(f"{key} has shape {list(values.shape)}, one number for each word is wanted")
    return values.long()


def check_words(key: str, words: Tensor, vocab: int, said: Tensor | None = None) -> None:
    """LoadError, naming index and value, unless these are ids below `vocab`, each once; `said` are the numbers that
    they were made from, if others."""
    said = words if said is None else said
    outside = ((words < 0) | (words >= vocab)).nonzero().flatten()
    if len(outside):
        at = int(outside[0])
        leads = "" if said is words else f", which leads to the target's id {int(words[at])}"
        raise LoadError(f"{key}[{at}] is {int(said[at])}{leads}: allowed are ids from 0 to {vocab - 1}")
    order = words.argsort(stable=True)
    twice = (words[order].diff() == 0).nonzero().flatten()
    if len(twice):
        first, second = (int(order[int(twice[0]) + place]) for place in (0, 1))
        raise LoadError(
            f"{key}[{second}] is {int(said[second])} and leads to the target's id {int(words[second])}, as "
            f"{key}[{first}] does: each word may stand once"
        )
