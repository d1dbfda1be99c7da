"""Conversations of the user's own, out of the forms that such data has: what users say, and what the model is told.

    .jsonl, .json   one value a line, or one array of values
    .parquet        one row a conversation (pyarrow: the extra `lab`)
    .txt            one prompt a line, or blocks parted by lines `---`
    a folder        every .txt file in it is a prompt

A value is a text, a list (texts are turns, objects are messages), or an object with one of these fields:

    messages, conversations, conversation   messages with role and content, or from and value (ShareGPT)
    turns                                   a list of texts
    prompt, instruction, question, text     text, a list of texts, or messages; `input` goes on an instruction

and beside it, where there is one, `system` (or `system_prompt`) and `category`. Answers that stand in the data
(assistant, gpt, response, completion, output, …) are not read: the target writes its own. What cannot be used is left
out, counted and said; a file of which nothing can be used is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forerun.core.errors import LoadError
from forerun.workloads.files import contents, from_folder, from_text

FORMS = (".jsonl", ".json", ".parquet", ".txt")
MESSAGES = ("messages", "conversations", "conversation")
ASKED = (*MESSAGES, "turns", "prompt", "instruction", "question", "text")
SYSTEM = ("system", "system_prompt")
USERS = frozenset(("user", "human", "prompter"))
SYSTEMS = frozenset(("system", "developer"))
ANSWERERS = frozenset(("assistant", "gpt", "model", "bot", "chatgpt", "bing", "bard", "ai"))
_SHOWN = 3  # reasons that are told of a file


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a user says, turn by turn, in a conversation of the domain `domain`."""

    domain: str
    turns: tuple[str, ...]
    system: str = ""
    """What the model is told before."""


@dataclass(frozen=True, slots=True)
class OwnData:
    """The conversations of some files."""

    conversations: tuple[Conversation, ...]
    names: tuple[str, ...]
    notes: tuple[str, ...]
    """What was left out of them, a line each."""

    @property
    def asked(self) -> str:
        """Where the prompts are from, in words."""
        return f"{len(self.conversations)} conversations of {', '.join(self.names)}"

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that change with anything that is asked."""
        said = json.dumps([[one.domain, one.system, *one.turns] for one in self.conversations])
        return hashlib.sha256(said.encode()).hexdigest()[:16]


@dataclass(slots=True)
class _Left:
    """What was left out of a file."""

    reasons: list[str] = field(default_factory=list)
    """Of whole records, with their places."""
    messages: Counter[str] = field(default_factory=Counter)
    """Of single messages, by what they were."""

    def notes(self, path: Path, records: int) -> list[str]:
        found = []
        if self.reasons:
            more = f"; and {len(self.reasons) - _SHOWN} more" if len(self.reasons) > _SHOWN else ""
            shown = "; ".join(self.reasons[:_SHOWN])
            found.append(f"{path}: {len(self.reasons)} of {records} records are left out: {shown}{more}")
        for what, count in sorted(self.messages.items()):
            found.append(f"{path}: {count} {what} left out")
        return found


def own_data(paths: Sequence[Path]) -> OwnData:
    """The conversations of these files; LoadError for one that cannot be read or holds none."""
    conversations: list[Conversation] = []
    notes: list[str] = []
    for path in paths:
        left, records = _Left(), 0
        before = len(conversations)
        for place, value in _values(path):
            records += 1
            try:
                if isinstance(value, LoadError):
                    raise value
                conversations.append(_conversation(value, _domain(path), left))
            except LoadError as error:
                left.reasons.append(f"{place}: {error}")
        if len(conversations) == before:
            raise LoadError(f"{path} holds no conversation: {left.reasons[0] if left.reasons else 'it is empty'}")
        notes += left.notes(path, records)
    return OwnData(tuple(conversations), tuple(path.name for path in paths), tuple(notes))


def _domain(path: Path) -> str:
    return path.resolve().parent.name if path.stem == "question" else path.stem


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    """What stands in a file, with its places; a LoadError in the place of a value that cannot be read."""
    suffix = path.suffix.lower()
    if path.is_dir():
        return ((prompt.id, prompt.text) for prompt in from_folder(path))
    if suffix not in FORMS:
        raise LoadError(f"{path}: data is read from {', '.join(FORMS)} files and folders of .txt files")
    if suffix == ".parquet":
        return _rows(path)
    said = contents(path)
    if "\0" in said:
        raise LoadError(f"{path} is no text, though its name ends in {suffix}")
    if suffix == ".txt":
        return ((prompt.id, prompt.text) for prompt in from_text(said, str(path)))
    return _json_values(said)


def _json_values(said: str) -> Iterator[tuple[str, Any]]:
    """An array's items, the one value of the whole text, or one value a line."""
    whole = _parsed(said) if said.lstrip()[:1] in ("[", "{") else None
    if isinstance(whole, list) and not _is_messages(whole):
        yield from ((f"item {count}", value) for count, value in enumerate(whole, 1))
    elif whole is not None and not isinstance(whole, LoadError):
        yield "the file", whole
    else:  # not splitlines: JSON text may hold separators that are line ends to it, such as U+2028
        yield from ((f"line {count}", _parsed(line)) for count, line in enumerate(said.split("\n"), 1) if line.strip())


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return LoadError(f"not JSON ({error})")


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise LoadError(f'{path}: parquet files need pyarrow: pip install "forerun[lab]"') from None
    try:
        with parquet.ParquetFile(path) as file:
            rows = [row for batch in file.iter_batches() for row in batch.to_pylist()]
    except (ArrowException, OSError) as error:
        raise LoadError(f"{path} cannot be read as parquet: {str(error).splitlines()[0]}") from None
    return ((f"row {count}", row) for count, row in enumerate(rows, 1))


def _conversation(value: Any, domain: str, left: _Left) -> Conversation:
    """One record; LoadError for one that cannot be used, with the reason."""
    record = value if isinstance(value, Mapping) else {"messages" if _is_messages(value) else "turns": value}
    name = next((name for name in ASKED if record.get(name) is not None), None)
    if name is None:
        has = ", ".join(map(str, record)) or "nothing"
        raise LoadError(f"no prompt: one of the fields {', '.join(ASKED)} is needed (it has: {has})")
    asked = record[name]
    if name in MESSAGES or _is_messages(asked):
        system, turns = _spoken(asked, name, left)
    else:
        system, turns = "", [asked] if isinstance(asked, str) else _texts(asked, name)
    if name == "instruction" and isinstance(more := record.get("input"), str) and more.strip():
        turns = [f"{turns[0]}\n\n{more}", *turns[1:]]
    told = next((record[key] for key in SYSTEM if isinstance(record.get(key), str)), "")
    said = [turn.strip() for turn in turns if turn.strip()]
    left.messages["empty messages"] += len(turns) - len(said)
    left.messages += Counter()  # without what is 0
    if not said:
        raise LoadError(f"field {name!r}: no user says anything")
    system = "\n\n".join(filter(None, (told.strip(), system)))
    if any("\ud800" <= char <= "\udfff" for text in (*said, system) for char in text):
        raise LoadError(f"field {name!r} has half a surrogate pair, which is no text")
    category = record.get("category")
    return Conversation(category if isinstance(category, str) and category.strip() else domain, tuple(said), system)


def _is_messages(value: Any) -> bool:
    """Whether it is a list of messages."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, Mapping) and ("role" in one or "from" in one) for one in value)
    )


def _texts(value: Any, name: str) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise LoadError(f"field {name!r} must be text, a list of texts or messages, got {_shown(value)}")
    return value


def _spoken(messages: Any, name: str, left: _Left) -> tuple[str, list[str]]:
    """What the model is told, and what users say, of messages with role and content or from and value."""
    if isinstance(messages, list) and messages and all(isinstance(one, str) for one in messages):
        return "", messages[::2]  # they take turns, and the user begins
    if not isinstance(messages, list) or not all(isinstance(one, Mapping) for one in messages):
        raise LoadError(f"field {name!r} must be a list of messages, got {_shown(messages)}")
    system, turns = [], []
    for number, message in enumerate(messages, 1):
        role = message.get("role", message.get("from"))
        if not isinstance(role, str):
            raise LoadError(f"message {number} of field {name!r} has no role")
        role = role.lower()
        if role in ANSWERERS:
            continue
        if role not in USERS | SYSTEMS:
            left.messages[f"messages of the role {role}"] += 1
            continue
        text = _text(message, f"message {number} of field {name!r}")
        if role in USERS:
            turns.append(text)
        elif turns:
            left.messages["system messages behind a user's first turn"] += 1
        else:
            system.append(text.strip())
    return "\n\n".join(filter(None, system)), turns


def _text(message: Mapping[str, Any], where: str) -> str:
    """A message's text; in the form with parts, that of all its parts."""
    value = message.get("content", message.get("value"))
    if isinstance(value, list):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in value]
        odd = any(isinstance(part, Mapping) and part.get("type", "text") != "text" for part in value)
        value = "\n".join(part for part in parts if isinstance(part, str)) if not odd else value
    if value is None:
        return ""
    if not isinstance(value, str):
        raise LoadError(f"{where} is no text: {_shown(value)}")
    return value


def _shown(value: object) -> str:
    """A value, cut where it would fill the line."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
