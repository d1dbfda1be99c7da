"""Fields of a JSON record, read with one clear line for whatever is not as it must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from forerun.core.errors import LoadError, SpecError

Record = Mapping[str, Any]


@contextmanager
def at(where: str) -> Iterator[None]:
    """Say in every LoadError and SpecError of the block where it arose; all become LoadErrors."""
    try:
        yield
    except (LoadError, SpecError) as error:
        raise LoadError(f"{where}: {error}") from None


def text(record: Record, name: str, *, empty: bool = False) -> str:
    """A field that is text; LoadError if it is missing, something else, or blank where `empty` does not allow it."""
    value = _value(record, name)
    if not isinstance(value, str):
        raise LoadError(f"field {name!r} must be text, got {_shown(value)}")
    if not (empty or value.strip()):
        raise LoadError(f"field {name!r} is empty")
    return value


def texts(record: Record, name: str) -> tuple[str, ...]:
    """A field that is text or a list of texts, none of them blank; LoadError otherwise."""
    value = _value(record, name)
    if isinstance(value, str):
        return (text(record, name),)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise LoadError(f"field {name!r} must be text or a list of texts, got {_shown(value)}")
    if not value:
        raise LoadError(f"field {name!r} is an empty list")
    blank = [number for number, item in enumerate(value, 1) if not item.strip()]
    if blank:
        raise LoadError(f"text {blank[0]} of field {name!r} is empty")
    return tuple(value)


def spoken(record: Record, name: str, role: str, said: str, users: tuple[str, ...]) -> tuple[str, ...]:
    """What `users` say in a conversation: a list of messages with fields `role` and `said`; may be none.

    What others say (the assistant, tools) is left out: a measured model answers for itself.
    """
    messages = _value(record, name)
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        raise LoadError(f"field {name!r} must be a list of messages with {role!r} and {said!r}, got {_shown(messages)}")
    turns = []
    for number, message in enumerate(messages, 1):
        with at(f"message {number} of field {name!r}"):
            if text(message, role) in users:
                turns.append(_content(message, said))
    return tuple(turns)


def references(record: Record, name: str = "reference") -> tuple[str, ...]:
    """Known answers, if any: texts or numbers, in lists of any depth (Spec-Bench nests them), laid flat."""
    found: list[str] = []
    left = [record.get(name)]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left.extend(reversed(value))
        elif isinstance(value, str | int | float):
            found.append(str(value))
        elif value is not None:
            raise LoadError(f"field {name!r} must be text, a number or a list of these, got {_shown(value)}")
    return tuple(found)


def number(record: Record, name: str) -> str:
    """A field that names a record, a whole number or text, as text; LoadError otherwise."""
    value = _value(record, name)
    return str(value) if type(value) is int else text(record, name)


def _content(message: Record, said: str) -> str:
    """A message's text; in the form with parts, that of all its parts."""
    value = _value(message, said)
    if not isinstance(value, list):
        return text(message, said)
    parts = []
    for part in value:
        if not isinstance(part, Mapping) or part.get("type") != "text":
            raise LoadError(f"field {said!r} may only have parts of type 'text', got {_shown(part)}")
        parts.append(text(part, "text"))
    return "\n".join(parts)


def _value(record: Record, name: str) -> Any:
    if record.get(name) is None:
        raise LoadError(f"no field {name!r} (it has: {', '.join(map(str, record)) or 'nothing'})")
    return record[name]


def _shown(value: object) -> str:
    """A value, cut where it would fill the line."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
