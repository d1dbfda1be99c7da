"""What a user types: a line editor on a terminal, plain lines from anywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from forerun.core.errors import SpecError

Reader = Callable[[], str | None]
"""The next message or command; None at the end."""


def reader() -> Reader:
    """The editor if a person sits there."""
    return editor() if sys.stdin.isatty() and sys.stderr.isatty() else line


def line() -> str | None:
    """One line of standard input."""
    try:
        text = sys.stdin.readline()
    except UnicodeDecodeError as error:
        raise SpecError(f"standard input is not UTF-8 text: {error.reason} at byte {error.start}") from None
    return text.rstrip("\r\n") if text else None


def editor(**ends: Any) -> Reader:
    """Editing with history across sessions; what is pasted is one message. `ends` are another input and output."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output

    os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")  # some terminals never say where the cursor is, and it waits
    ends = ends or {"output": create_output(stdout=sys.stderr)}
    session: PromptSession[str] = PromptSession(history=_history(), key_bindings=_keys(), multiline=True, **ends)

    def read() -> str | None:
        while True:
            try:
                return session.prompt("> ", prompt_continuation="  ").replace("\r\n", "\n").replace("\r", "\n")
            except KeyboardInterrupt:
                print("Ctrl-D or /exit leaves; the conversation is kept", file=sys.stderr)
            except EOFError:
                return None

    return read


def _keys() -> Any:
    """Enter sends, Alt-Enter and Ctrl-J begin a new line."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()
    keys.add("enter")(lambda event: event.current_buffer.validate_and_handle())
    for new_line in (("escape", "enter"), ("c-j",)):
        keys.add(*new_line)(lambda event: event.current_buffer.insert_text("\n"))
    return keys


def _history() -> Any:
    """The file of former sessions, which the user alone may read; where it cannot be written, this session's."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    from forerun.weights.pull import home

    path = home() / "chat_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError as error:
        print(f"warning: no history across sessions: {error.strerror}: {path}", file=sys.stderr)
        return InMemoryHistory()
    return FileHistory(str(path))
