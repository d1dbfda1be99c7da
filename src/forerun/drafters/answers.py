"""Earlier answers of an engine, indexed: first in, first out, within a bound of tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from forerun.drafters.index import Occurrences

BORDER = -1  # stands between answers; no token has this id, so no match crosses it


class Answers:
    """Up to `limit` tokens of whole answers, the oldest dropped first; of a longer answer its last part.

    What was dropped leaves memory when as much again has been dropped: twice the limit is held at most.
    """

    def __init__(self, limit: int, gram: int) -> None:
        self.limit = limit
        self.index = Occurrences([], gram)
        self._tokens: list[int] = []
        self._starts: deque[int] = deque()
        self._renew()

    def __len__(self) -> int:
        return len(self._tokens) - self.index.floor

    def texts(self) -> list[list[int]]:
        """The answers that are held, oldest first."""
        ends = [*self._starts, len(self._tokens)][1:]
        return [self._tokens[start : end - 1] for start, end in zip(self._starts, ends, strict=True)]

    def add(self, answer: Sequence[int]) -> None:
        """Hold one more answer."""
        kept = list(answer[-self.limit + 1 :]) if self.limit > 1 else []
        if not kept:
            return
        self._starts.append(len(self._tokens))
        self._tokens += [*kept, BORDER]
        while len(self._tokens) - self._starts[0] > self.limit:
            self._starts.popleft()
        self.index.floor = self._starts[0]
        if self.index.floor > self.limit:
            self._renew()
        self.index.update()

    def _renew(self) -> None:
        """Index what is left anew; places of the old index mean nothing in the new one."""
        gone = self.index.floor
        self._tokens = self._tokens[gone:]
        self._starts = deque(start - gone for start in self._starts)
        self.index = Occurrences(self._tokens, self.index.gram)
