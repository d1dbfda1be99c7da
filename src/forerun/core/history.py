"""Which tokens were said, and how often, as vectors over the vocabulary: what penalties look at.

Kept beside a sequence and brought up to date with what came since, so that a row costs the same at any length.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class History:
    """The history of one growing text, whose first `prompt_len` tokens are its prompt, for rows like `like` [V]."""

    def __init__(self, tokens: Sequence[int], prompt_len: int, like: Tensor) -> None:
        self._tokens = tokens
        self._read = prompt_len
        self._seen = torch.zeros_like(like, dtype=torch.bool)
        self._counts = torch.zeros_like(like)
        self._seen[self._ids(tokens[:prompt_len])] = True

    def after(self, path: Sequence[int]) -> tuple[Tensor, Tensor]:
        """For the text followed by `path`: whether a token is in it or its prompt, bool [V], and how often in its
        output [V]. To be read only."""
        if self._read < len(self._tokens):
            self._count(self._seen, self._counts, self._tokens[self._read :])
            self._read = len(self._tokens)
        if not path:
            return self._seen, self._counts
        seen, counts = self._seen.clone(), self._counts.clone()
        self._count(seen, counts, path)
        return seen, counts

    def _count(self, seen: Tensor, counts: Tensor, tokens: Sequence[int]) -> None:
        ids = self._ids(tokens)
        seen[ids] = True
        counts.index_put_((ids,), counts.new_ones(()), accumulate=True)

    def _ids(self, tokens: Sequence[int]) -> Tensor:
        """Token ids as an index; ids outside the vocabulary have no row and are left out."""
        ids = torch.tensor(tokens, dtype=torch.long, device=self._counts.device)
        return ids[(ids >= 0) & (ids < self._counts.shape[0])]
