"""Prompts from files of the user's own: JSON-lines, plain text, or a folder of long texts.

**JSON-lines** (`.jsonl`, `.json`): one object a line, blank lines apart. What is asked stands in the first of these
that the object has:

    turns       a list of texts: the FastChat form, which Spec-Bench, MT-Bench and EAGLE's sets have
    messages    a conversation in OpenAI's form; the user's messages are the turns, a system message comes before them
    prompt      text, or a list of texts, one a turn
    text        text

and beside it, where there is one, `id`, `question_id` or `task_id` (text or a whole number; else `line-N`), `category`
and `reference` (texts or numbers, in lists or not). Other fields are left alone.

**Plain text** (any other name): one prompt a line, `line-N`. If a line is `---` and nothing else, such lines part
blocks and each block is a prompt, `block-N`; one such line at the end makes the whole file a single prompt.

**A folder**: every `.txt` file in it is one prompt, in order of names, with the file's name as its id.

All are UTF-8, with or without a byte order mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from forerun.core.errors import LoadError
from forerun.workloads.prompts import Prompt, Workload
from forerun.workloads.records import Record, at, number, references, spoken, text, texts

IDS = ("id", "question_id", "task_id")
ASKED = ("turns", "messages", "prompt", "text")
RULE = "---"
TABLES = (".parquet", ".csv", ".tsv", ".arrow", ".xlsx", ".gz", ".zip", ".zst")
"""Endings of files that hold prompts in forms that are no plain text."""


def from_path(path: Path) -> Workload:
    """The workload of a file or folder; LoadError with line and field for what cannot be used.

    It is called after the file, or after its folder where the file is one of the many named question.jsonl.
    """
    if path.is_dir():
        return Workload(path.resolve().name, from_folder(path), str(path))
    read = from_jsonl if path.suffix.lower() in (".jsonl", ".json") else from_text
    if path.suffix.lower() in TABLES:
        raise LoadError(f"{path}: prompts are read from .jsonl and .json files, plain text, and folders of .txt files")
    name = path.resolve().parent.name if path.stem == "question" else path.stem
    return Workload(name or path.name, read(contents(path), str(path)), str(path))


def contents(path: Path) -> str:
    """A file's text; LoadError if it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise LoadError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8 text") from None
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror or error}") from None


def from_jsonl(said: str, where: str) -> tuple[Prompt, ...]:
    """The prompts of JSON-lines; `where` names the file in errors."""

    def prompts() -> Iterator[tuple[str, Prompt]]:
        # Not splitlines: JSON text may hold separators that are line ends to it, such as U+2028.
        for count, line in enumerate(said.split("\n"), 1):
            if line.strip():
                with at(f"{where} line {count}"):
                    yield f"line {count}", to_prompt(_object(line), f"line-{count}")

    return _collected(prompts(), where)


def from_text(said: str, where: str) -> tuple[Prompt, ...]:
    """The prompts of plain text; `where` names the file in errors."""
    lines = said.split("\n")
    rules = [count for count, line in enumerate(lines) if line.strip() == RULE]
    kind, pieces = "line", lines
    if rules:
        kind = "block"
        pieces = [
            "\n".join(lines[first + 1 : end]) for first, end in zip([-1, *rules], [*rules, len(lines)], strict=True)
        ]
    named = ((f"{kind}-{count}", piece.strip()) for count, piece in enumerate(pieces, 1))
    return _collected(((id, Prompt(id, (piece,))) for id, piece in named if piece), where)


def from_folder(path: Path) -> tuple[Prompt, ...]:
    """One prompt for every .txt file of a folder, in order of names; LoadError if there is none or one is empty."""
    try:
        stories = sorted(file for file in path.iterdir() if file.suffix.lower() == ".txt" and file.is_file())
    except OSError as error:
        raise LoadError(f"cannot read the folder {path}: {error.strerror or error}") from None
    if not stories:
        raise LoadError(f"{path} is a folder without .txt files: give one with texts, or the file itself")
    prompts = []
    for story in stories:
        with at(str(story)):
            prompts.append((story.name, Prompt(story.stem, (contents(story).strip(),))))
    return _collected(prompts, str(path))


def to_prompt(record: Record, id: str) -> Prompt:
    """The prompt of one object; `id` is for one that has none. LoadError names the field."""
    named = next((name for name in IDS if record.get(name) is not None), None)
    asked = next((name for name in ASKED if record.get(name) is not None), None)
    if asked is None:
        has = ", ".join(map(str, record)) or "nothing"
        raise LoadError(f"no prompt: one of the fields {', '.join(ASKED)} is needed (it has: {has})")
    system = ""
    if asked == "messages":
        turns = spoken(record, asked, "role", "content", ("user",))
        system = "\n\n".join(spoken(record, asked, "role", "content", ("system", "developer")))
        if not turns:
            raise LoadError("field 'messages' has no message of role 'user'")
    else:
        turns = (text(record, asked),) if asked == "text" else texts(record, asked)
    category = text(record, "category", empty=True) if record.get("category") is not None else ""
    return Prompt(number(record, named) if named else id, turns, category, references(record), system)


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise LoadError(f"not JSON ({error.msg}, column {error.colno}): one object a line is needed") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise LoadError(f"not JSON that can be read ({error}): one object a line is needed") from None
    if not isinstance(value, dict):
        raise LoadError(f"a {type(value).__name__} instead of an object: one object a line is needed")
    return value


def _collected(prompts: Iterable[tuple[str, Prompt]], where: str) -> tuple[Prompt, ...]:
    """Prompts with the places they were found at: some, and no id twice."""
    places: dict[str, str] = {}
    kept = []
    for place, prompt in prompts:
        if prompt.id in places:
            raise LoadError(f"{where} {place}: id {prompt.id!r} is that of {places[prompt.id]} too: give each its own")
        places[prompt.id] = place
        kept.append(prompt)
    if not kept:
        raise LoadError(f"{where} has no prompts: it is empty or blank")
    return tuple(kept)
