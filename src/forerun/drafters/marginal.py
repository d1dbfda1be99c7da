"""Trees over rows that know only how far ahead they guess: P-EAGLE's masked slots, Medusa's heads.

The children of all nodes of one depth are then the same words, and a tree is a choice among their combinations.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from forerun.core.noise import Noise
from forerun.core.vocabulary import Vocabulary
from forerun.core.work import Item
from forerun.drafters.growth import Growth
from forerun.drafters.word_rows import WordRows, real_words
from forerun.models.heads.runner import MedusaRunner, RecurrentRunner


class MarginalRows(WordRows):
    """Rows of a head that guesses all positions at once: one for each depth, whatever stands before.

    `logits` [B, K, draft words]: row d is about the token d + 1 after the root.
    """

    def __init__(
        self, items: Sequence[Item], logits: Tensor, words: Tensor | None, vocab: int, vocabulary: Vocabulary
    ) -> None:
        self._depths = logits.shape[1]
        self._known: dict[tuple[int, int], tuple[list[int], list[float]]] = {}
        flat, words = real_words(logits.flatten(0, 1), words, vocab)
        super().__init__([], flat[:0], words, vocab, None, vocabulary)
        self.items = items
        self._logits = flat

    def likeliest(self, b: int, node: int, count: int) -> tuple[list[int], list[float]]:
        """Once for all nodes of a depth, as far as nothing edits the logits for a node's own path."""
        if self._edits(b):
            return super().likeliest(b, node, count)
        key = (self.place(b, node), count)
        if key not in self._known:
            self._known[key] = super().likeliest(b, node, count)
        return self._known[key]

    def place(self, b: int, node: int) -> int:
        return b * self._depths + len(self.items[b].nodes.path(node))


def grow_over(
    growths: Sequence[Growth], marginals: Tensor, runner: MedusaRunner | RecurrentRunner, vocab: int, noise: Noise
) -> None:
    """Grow all trees to their end over `marginals` [B, K, draft words] of the runner's head."""
    words, vocabulary = runner.head.words, runner.vocabulary
    while growing := [b for b, growth in enumerate(growths) if growth.frontier]:
        items = [growths[b].on_its_own() for b in growing]
        every = len(growing) == len(growths)
        rows = MarginalRows(items, marginals if every else marginals[growing], words, vocab, vocabulary)
        for i, b in enumerate(growing):
            growths[b].grow(rows, i, noise)
