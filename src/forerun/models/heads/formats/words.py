"""Draft words on disk: `d2t` is an offset (target id = j + d2t[j]), `t2d` marks the target's ids that are known.

SafeAILab and speculators write words by id, ModelOpt by frequency: the order means nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from forerun.core.errors import LoadError
from forerun.models.heads.words import check_words, whole


def words_of(d2t: Tensor | None, t2d: Tensor | None, vocab: int) -> Tensor | None:
    """Target ids of the draft words; None without d2t. LoadError for maps that are none, or that contradict each
    other."""
    marked = None if t2d is None else _marked(t2d, vocab)
    if d2t is None:
        return None
    offsets = whole("d2t", d2t)
    words = torch.arange(len(offsets)) + offsets
    check_words("d2t", words, vocab, offsets)
    if marked is not None and not torch.equal(marked, words.sort().values):
        raise LoadError(
            f"d2t (shape {list(d2t.shape)}) leads to other words than t2d (shape {[vocab]}, {len(marked)} marks): the "
            "head is damaged"
        )
    return words


def _marked(t2d: Tensor, vocab: int) -> Tensor:
    """Ids that are marked, ascending."""
    marks = t2d.long() if t2d.dtype == torch.bool and t2d.ndim == 1 else whole("t2d", t2d)
    if len(marks) != vocab:
        raise LoadError(f"t2d has shape {list(t2d.shape)}, the config asks for [{vocab}]")
    odd = ((marks != 0) & (marks != 1)).nonzero().flatten()
    if len(odd):
        raise LoadError(f"t2d[{int(odd[0])}] is {int(marks[odd[0]])}: a mark is 0 or 1, false or true")
    return marks.nonzero().flatten()


def d2t_t2d(words: Tensor, vocab: int) -> dict[str, Tensor]:
    """Both tensors of these words."""
    t2d = torch.zeros(vocab, dtype=torch.bool)
    t2d[words] = True
    return {"d2t": words.long() - torch.arange(len(words)), "t2d": t2d}
