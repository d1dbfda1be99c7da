"""The text of one answer as its tokens arrive: whole characters only, and never the head of a stop string.

Bytes wait until their character is complete, characters wait while they may be the beginning of a stop
string: exactly the longest such tail, tracked as Knuth, Morris and Pratt do. So the parts sent, joined,
are the decoded answer cut before the first stop string, however its tokens were grouped.
"""

import codecs
from collections.abc import Sequence
from typing import Protocol

from forerun.core.errors import SpecError


class Pieces(Protocol):
    """What incremental decoding needs of a tokenizer."""

    @property
    def strip_space(self) -> bool:
        """Whether a text's leading space belongs to the tokenizer."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """Raw bytes of a token, none for special ones."""
        ...


class TextStream:
    """Incremental text of one answer; the work per token is that of its new characters."""

    def __init__(self, tokenizer: Pieces, stops: Sequence[str] = (), *, lead: bool | None = None) -> None:
        """`stops`: strings that end the answer; SpecError if one is empty. `lead`: whether a space at the beginning is
        dropped; None is as for a text of its own, which nothing stands before."""
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._watches = [_Watch(stop) for stop in stops]
        self._lead = tokenizer.strip_space if lead is None else lead
        self._parts: list[str] = []  # text that is certain
        self._sent = 0  # parts already taken
        self._held = ""  # a tail that may yet become a stop string
        self._over = False

    @property
    def text(self) -> str:
        """Everything so far, the held tail included, cut before a completed stop string."""
        return "".join(self._parts) + self._held

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete."""
        return self._over

    def hear(self, token: int) -> bool:
        """Add a token; True once a stop string is complete. Tokens after that change nothing."""
        raw = self._tokenizer.token_bytes(token)
        if raw and self._lead:
            self._lead = False
            raw = raw.removeprefix(b" ")
        return self._over or self._add(self._decoder.decode(raw))

    def take(self) -> str:
        """Text that became certain since the last call; possibly empty."""
        new = "".join(self._parts[self._sent :])
        self._sent = len(self._parts)
        return new

    def finish(self) -> str:
        """The rest, when no token follows: what was held back, incomplete bytes as U+FFFD."""
        if not self._over:
            self._add(self._decoder.decode(b"", final=True))
        if self._held:
            self._parts.append(self._held)
            self._held = ""
        return self.take()

    def _add(self, new: str) -> bool:
        if not new:
            return False
        window = self._held + new
        end, cut = self._search(new, len(self._held))
        if end is not None:
            self._over, self._held = True, ""
            self._keep(window[: end - cut])
            return True
        keep = len(window) - max((w.state for w in self._watches), default=0)
        self._keep(window[:keep])
        self._held = window[keep:]
        return False

    def _search(self, new: str, offset: int) -> tuple[int | None, int]:
        """End of the first completed stop string within held + new, and its length (the longest ending there)."""
        for at, char in enumerate(new if self._watches else "", start=1):
            done = [len(w.stop) for w in self._watches if w.step(char)]
            if done:
                return offset + at, max(done)
        return None, 0

    def _keep(self, text: str) -> None:
        if text:
            self._parts.append(text)


class _Watch:
    """One stop string; `state` is how much of it the text so far ends with."""

    def __init__(self, stop: str) -> None:
        if not stop:
            raise SpecError("a stop string is empty (allowed: at least one character); leave it out")
        self.stop = stop
        self.state = 0
        self._back = [0] * len(stop)  # longest proper border of stop[: i + 1]
        size = 0
        for i in range(1, len(stop)):
            while size and stop[i] != stop[size]:
                size = self._back[size - 1]
            size += stop[i] == stop[size]
            self._back[i] = size

    def step(self, char: str) -> bool:
        """Follow the text by one character; True when the stop string is complete."""
        while self.state and char != self.stop[self.state]:
            self.state = self._back[self.state - 1]
        self.state += char == self.stop[self.state]
        return self.state == len(self.stop)
