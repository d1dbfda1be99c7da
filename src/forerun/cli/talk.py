"""A conversation in the making, and the commands that a user may type between messages."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forerun.cli.common import stats_line
from forerun.core.errors import SpecError, unknown

if TYPE_CHECKING:
    from forerun.engine.results import Result


@dataclass(slots=True)
class Talk:
    """What was said, and the instructions before it."""

    system: str | None = None
    turns: list[dict[str, object]] = field(default_factory=list)
    last: Result | None = None

    @property
    def messages(self) -> list[dict[str, object]]:
        """All of it as a chat template reads it."""
        begun: list[dict[str, object]] = [{"role": "system", "content": self.system}] if self.system else []
        return [*begun, *self.turns]

    def ask(self, text: str) -> None:
        """Add the user's message."""
        self.turns.append({"role": "user", "content": text})

    def take_back(self) -> None:
        """Remove the user's last message, which got no answer."""
        self.turns.pop()

    def hear(self, result: Result) -> None:
        """Add the answer."""
        self.turns.append({"role": "assistant", "content": result.text})
        self.last = result


def _help(talk: Talk, rest: str) -> None:
    for names, (told, _) in COMMANDS.items():
        _say(f"{names:<16} {told}")
    _say("Alt-Enter begins a new line; what is pasted is one message; arrows recall what was typed before")


def _new(talk: Talk, rest: str) -> None:
    talk.turns.clear()
    _say("the conversation starts over")


def _system(talk: Talk, rest: str) -> None:
    talk.system = rest or None
    _say("instructions are set" if rest else "there are no instructions")


def _stats(talk: Talk, rest: str) -> None:
    _say(stats_line(talk.last.stats) if talk.last else "there is no answer yet")


def _leave(talk: Talk, rest: str) -> None:
    raise EOFError


COMMANDS: dict[str, tuple[str, Callable[[Talk, str], None]]] = {
    "/help": ("this list", _help),
    "/new /clear /reset": ("start the conversation over", _new),
    "/system": ("TEXT: instructions before the conversation; without TEXT there are none", _system),
    "/stats": ("what speculation did for the last answer", _stats),
    "/exit /quit /bye": ("leave, as Ctrl-D does", _leave),
}
"""Names to what is said of them and what they do."""


def command_in(text: str) -> bool:
    """Whether this is a command: one line, and its first word a slash and letters. A blank before it makes it text."""
    return "\n" not in text.strip() and re.match(r"/\w*(\s|$)", text) is not None


def obey(talk: Talk, text: str) -> bool:
    """Do what a command says; False to leave. An unknown one is refused with the list."""
    name, _, rest = text.strip().partition(" ")
    known = {one: act for names, (_, act) in COMMANDS.items() for one in names.split()}
    try:
        if name not in known:
            raise unknown("command", name, known)
        known[name](talk, rest.strip())
    except SpecError as error:
        _say(f"{error}; a blank before it makes it a message")
    except EOFError:
        return False
    return True


def _say(text: str) -> None:
    print(text, file=sys.stderr)
