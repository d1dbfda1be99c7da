"""Ctrl-C and SIGTERM while there is something to save: the work is told to stop at its next safe place, and saves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Halted(KeyboardInterrupt):
    """The work stopped where it was told to, and what it had is saved."""


class Halt:
    """Whether the work is to stop. A second signal does not wait for it: KeyboardInterrupt where it is."""

    def __init__(self) -> None:
        self.asked = False
        self.signal: int = signal.SIGINT
        self._careful = False

    def check(self) -> None:
        """Halted, if the work is to stop."""
        if self.asked:
            raise Halted

    @contextmanager
    def careful(self) -> Iterator[None]:
        """A block that looks at `asked` itself; elsewhere a signal raises KeyboardInterrupt at once."""
        before, self._careful = self._careful, True
        try:
            yield
        finally:
            self._careful = before

    @contextmanager
    def listening(self) -> Iterator[Halt]:
        """A block in which the process's signals are heard, if this is its main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before: dict[int, Any] = {number: signal.signal(number, self._heard) for number in _SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        again, self.asked, self.signal = self.asked, True, number
        if again or not self._careful:
            raise KeyboardInterrupt
