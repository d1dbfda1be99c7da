"""An answer on the screen as it grows, with drafted tokens in colour if wished."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forerun.core.seq import Token
    from forerun.engine.engine import Engine
    from forerun.engine.results import Result

GREEN, PLAIN = "\x1b[32m", "\x1b[0m"


def stream(engine: Engine, prompt: Any, params: Mapping[str, Any], colour: bool) -> Result:
    """Print an answer as it comes and return its result."""
    request = engine.add(prompt, **params)
    paint = Painter(engine) if colour else None
    try:
        while not engine.finished(request):
            for event in engine.step():
                sys.stdout.write(event.text if paint is None else paint(event.text, event.tokens))
                sys.stdout.flush()
    except BaseException:
        engine.cancel(request)
        raise
    print()
    return engine.collect(request)


class Painter:
    """Colours the part of a text that came from drafts.

    Text comes later than its tokens where characters or stop strings are incomplete, so bytes are matched to tokens in
    order; a character belongs to the token that completes it.
    """

    def __init__(self, engine: Engine) -> None:
        assert engine.words is not None
        self._words = engine.words
        self._owed: deque[tuple[int, bool]] = deque()

    def __call__(self, text: str, tokens: Iterable[Token]) -> str:
        for token in tokens:
            self._owed.append((len(self._words.token_bytes(token.id)), token.drafted))
        painted, on = [], False
        for char in text:
            drafted = self._spend(len(char.encode()))
            if drafted != on:
                painted.append(GREEN if drafted else PLAIN)
                on = drafted
            painted.append(char)
        return "".join(painted) + (PLAIN if on else "")

    def _spend(self, size: int) -> bool:
        """Use up the bytes of one character; whether its last byte was drafted."""
        drafted = False
        while size and self._owed:
            left, drafted = self._owed.popleft()
            used = min(left, size)
            size -= used
            if left > used:
                self._owed.appendleft((left - used, drafted))
        return drafted
