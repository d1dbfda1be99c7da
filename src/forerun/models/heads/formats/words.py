"""Draft words on disk: `d2t` is an offset (target id = j + d2t[j]), `t2d` marks the target's ids that are known."""

from __future__ import annotations

import torch
from torch import Tensor

from forerun.core.errors import LoadError


def words_of(d2t: Tensor | None, t2d: Tensor | None) -> Tensor | None:
    """Target ids of the draft words; None without d2t. LoadError if t2d marks others."""
    if d2t is None:
        return None
    words = torch.arange(len(d2t)) + d2t.long()
    if t2d is not None and not torch.equal(t2d.bool().nonzero().flatten(), words):
        raise LoadError(
            f"d2t (shape {list(d2t.shape)}) leads to other words than t2d (shape {list(t2d.shape)}, {int(t2d.sum())} "
            "marks): the head is damaged"
        )
    return words


def d2t_t2d(words: Tensor, vocab: int) -> dict[str, Tensor]:
    """Both tensors of these words."""
    t2d = torch.zeros(vocab, dtype=torch.bool)
    t2d[words] = True
    return {"d2t": words.long() - torch.arange(len(words)), "t2d": t2d}
