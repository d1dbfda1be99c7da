"""Rows of a head that knows some of the target's words: its row n is about the token after node n, in target ids.

What a reduced vocabulary leaves out has probability 0. Where nothing edits the logits they are looked at as they are,
a third of the target's width or less, and only ids are translated; else they are spread out first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forerun.core.rows import NEVER, Rows
from forerun.core.vocabulary import Support, Vocabulary
from forerun.core.work import Item


class WordRows(Rows):
    """Rows over `logits` [R, draft words], of which word j is the target's id words[j] (None: j itself)."""

    def __init__(
        self,
        items: Sequence[Item],
        logits: Tensor,
        words: Tensor | None,
        vocab: int,
        best: Sequence[int] | None,
        vocabulary: Vocabulary,
    ) -> None:
        whole = logits
        logits, words = real_words(logits, words, vocab)
        if words is not None and logits is not whole:
            best = None  # it counts columns that are gone
        super().__init__(items, logits, logits.shape[1], first_best=best, vocabulary=vocabulary)
        self._words, self._vocab = words, vocab

    @classmethod
    def among(cls, rows: Rows, words: Tensor, vocab: int) -> WordRows:
        """The rows of a model of which only the ids `words`, ascending, are the target's too."""
        logits = rows._logits[:, words.to(rows._logits.device)]
        return cls(rows.items, logits, words, vocab, None, rows._vocabulary)

    def argmax(self, b: int, node: int) -> int:
        if self._edits(b):
            return super().argmax(b, node)
        return self._target_id(self.first_best(self.place(b, node)))

    def likeliest(self, b: int, node: int, count: int) -> tuple[list[int], list[float]]:
        if self._edits(b):
            return super().likeliest(b, node, count)
        words, logs = self._vocabulary.likeliest(self._logits[self.place(b, node)], count)
        if self._words is None:
            return words, logs
        found: list[int] = self._words[torch.tensor(words, dtype=torch.long, device=self._words.device)].tolist()
        return found, logs

    def support(self, b: int, node: int) -> Support:
        if self._words is None or self._edits(b):
            return super().support(b, node)
        found = self._vocabulary.shape(self._logits[self.place(b, node)], self.items[b].seq.params)
        ids = self._words if found.ids is None else self._words[found.ids]
        return Support(ids, found.weights)

    def raw(self, b: int, node: int) -> Tensor:
        """The head's logits [V], minus infinity for words that it does not know."""
        row = self._logits[self.place(b, node)]
        if self._words is None:
            return row
        return row.new_full((self._vocab,), NEVER).index_copy_(0, self._words, row)

    def probs(self, b: int, node: int) -> Tensor:
        if self._words is None or self._edits(b) or self.items[b].seq.params.greedy:
            return super().probs(b, node)
        support = self.support(b, node)
        assert support.ids is not None
        return support.weights.new_zeros(self._vocab).index_copy_(
            0, support.ids.to(support.weights.device), support.weights
        )

    def _edits(self, b: int) -> bool:
        return self.items[b].seq.params.edits_logits

    def _target_id(self, word: int) -> int:
        return word if self._words is None else int(self._words[word])


def real_words(logits: Tensor, words: Tensor | None, vocab: int) -> tuple[Tensor, Tensor | None]:
    """Columns of `logits` [R, draft words] that are the target's real words, and which: what pads its table is none."""
    if words is None:
        return logits[:, :vocab], None
    words = words.to(logits.device)
    if not len(words) or int(words.max()) < vocab:
        return logits, words
    known = words < vocab
    return logits[:, known], words[known]
