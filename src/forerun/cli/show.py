"""An answer on the screen as it grows, with drafted tokens in colour if wished."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forerun.core.seq import Token
    from forerun.engine.engine import Engine
    from forerun.engine.results import Result

GREEN, PLAIN = "\x1b[32m", "\x1b[0m"


def stream(
    engine: Engine,
    prompt: Any,
    params: Mapping[str, Any],
    colour: bool,
    *,
    wrap: Callable[[str], str] | None = None,
    keep: bool = False,
) -> Result:
    """Print an answer as it comes and return its result; `wrap` breaks its lines. With `keep` an interruption ends the
    answer and gives what was said."""
    request = engine.add(prompt, **params)
    paint = Painter(engine) if colour else None
    written = 0

    def write(text: str, tokens: Iterable[Token] = ()) -> None:
        nonlocal written
        written += len(text)
        shown = text if paint is None else paint(text, tokens)
        sys.stdout.write(shown if wrap is None else wrap(shown))
        sys.stdout.flush()

    try:
        while not engine.finished(request):
            for event in engine.step():
                write(event.text, event.tokens)
    except BaseException as error:
        said = engine.cancel(request)
        if not keep or not isinstance(error, KeyboardInterrupt):
            raise
        write(said.text[written:])
        print()
        return said
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
