"""Where did the end of a text occur before? An index that grows with the text.

A dict from each gram (`gram` tokens in a row, folded to a number) to the newest place that follows one, and an array of
links from each place to the one before it: LZ77's hash chains. A token costs O(1) time and about 130 bytes, and nothing
is ever searched for from the start. Places are verified against the text, so two grams that share a number do no harm.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import islice

_PRIME = 1_073_741_789  # below 2**30: two ids fold without collision into 60 bits, the largest cheap int of CPython
_MASK = (1 << 60) - 1


class Occurrences:
    """Index of `tokens`, a list that may grow at its end.

    A place is the position after a gram: what stood there is what followed. Places before `floor` are forgotten.
    """

    def __init__(self, tokens: Sequence[int], gram: int = 2) -> None:
        self.tokens = tokens
        self.gram = gram
        self.floor = 0
        self._newest: dict[int, int] = {}
        self._older = array("i", [-1] * gram)  # by place; none before `gram`
        self.update()

    def update(self) -> None:
        """Take in the tokens that the list has gained."""
        first = len(self._older)
        fresh = self.tokens[first - self.gram :]
        newest, link = self._newest, self._older.append
        for place, key in enumerate(_keys(fresh, self.gram), start=first):
            link(newest.get(key, -1))
            newest[key] = place

    def places(self, text: Sequence[int]) -> Iterator[int]:
        """Places that follow the last gram of `text`, newest first, of those that something stands at."""
        key = _keys(text[-self.gram :], self.gram)
        place = self._newest.get(key[0], -1) if key else -1
        while place >= self.floor and place > 0:
            if place < len(self.tokens):
                yield place
            place = self._older[place]

    def candidates(self, text: Sequence[int], count: int, hint: int = -1) -> list[int]:
        """The `count` newest places that follow the last gram of `text`, then `hint` if it lies beyond them."""
        places = list(islice(self.places(text), count))
        if len(places) == count and max(self.floor, 0) < hint < places[-1]:
            places.append(hint)
        return places

    def matches(self, text: Sequence[int], count: int, limit: int, hint: int = -1) -> list[tuple[int, int]]:
        """Where the end of `text` (this list or any other) stands in this list: (place, tokens in agreement).

        Looks at `candidates`; agreement is counted from `gram` up to `limit`.
        """
        found = [(place, agreement(self.tokens, place, text, limit)) for place in self.candidates(text, count, hint)]
        return [match for match in found if match[1] >= self.gram]

    def longest(self, text: Sequence[int], count: int, limit: int, hint: int = -1) -> tuple[int, int]:
        """The match of most tokens, the newest among equals; (-1, 0) if there is none."""
        tokens, best, most = self.tokens, -1, self.gram - 1
        for place in self.candidates(text, count, hint):
            # whatever is longer agrees one token further back than the best so far: most candidates end here
            if most < place and most < len(text) and tokens[place - 1 - most] == text[-1 - most]:
                agreed = agreement(tokens, place, text, limit)
                if agreed > most:
                    best, most = place, agreed
                if most >= limit:
                    break
        return (best, most) if best >= 0 else (-1, 0)


def agreement(tokens: Sequence[int], place: int, text: Sequence[int], limit: int) -> int:
    """How many tokens just before `place` equal the last ones of `text`, at most `limit`."""
    shift = len(text) - place
    stop = max(place - limit, 0, -shift)
    at = place - 1
    while at >= stop and tokens[at] == text[at + shift]:
        at -= 1
    return place - 1 - at


def _keys(tokens: Sequence[int], gram: int) -> Sequence[int]:
    """A number for each gram of `tokens`, in order."""
    keys: Sequence[int] = tokens
    for shift in range(1, gram):
        keys = [(key * _PRIME + token) & _MASK for key, token in zip(keys, tokens[shift:], strict=False)]
    return keys
