"""Words that stay whole at a terminal's margin while a text streams in."""

from __future__ import annotations

import re
import shutil

_PARTS = re.compile(r"\x1b\[[0-9;]*m|.", re.S)
_TAB = 8


class Wrapped:
    """Called with the parts of a text, returns what to write: a word that reaches the margin is taken back from its
    line and begins the next. The last column stays free, since terminals differ in what they do there."""

    def __init__(self, width: int | None = None) -> None:
        """`width` in columns; None asks the terminal each time, which may change its size."""
        from prompt_toolkit.utils import get_cwidth

        self._cells = get_cwidth
        self._width = width
        self._column = 0
        self._word, self._size = "", 0  # the unfinished word, as it was written, and its columns
        self._style = ""

    def __call__(self, text: str) -> str:
        margin = max(2, (self._width or shutil.get_terminal_size().columns) - 1)
        return "".join(self._put(part, margin) for part in _PARTS.findall(text))

    def _put(self, part: str, margin: int) -> str:
        if len(part) > 1:  # a colour
            self._style = part
            self._word += part
            return part
        if part in "\n\r":
            self._column = 0
            self._end()
            return part
        size = _TAB - self._column % _TAB if part == "\t" else self._cells(part)
        before = ""
        if self._column + size > margin:
            if part in " \t":
                self._column = 0
                self._end()
                return "\n"
            before = self._next_line()
        self._column += size
        if part in " \t" or size > 1:  # lines may also end behind a wide character
            self._end()
        else:
            self._word, self._size = self._word + part, self._size + size
        return before + part

    def _next_line(self) -> str:
        """Begin a line with the unfinished word, unless it fills one by itself."""
        if self._size == self._column:
            self._end()
        taken, word = self._size, self._word
        self._column = self._size
        return f"\x1b[{taken}D\x1b[K\n{word}" if taken else "\n"

    def _end(self) -> None:
        self._word, self._size = self._style, 0
