"""Which control tokens of a rendered conversation the template wrote, and which stood in somebody's text.

Templates mix their own text with that of messages by any means that Jinja has, so the text alone does not tell. A
character that occurs nowhere is put into all texts of the caller's, between the characters of every word, and the
template rendered again: what it wrote itself is still whole. Words that the template looks for (`</think>`) are left
whole for it. Where the template counts characters or changes them, so that it does not write the same text, the
character is put into control tokens alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from forerun.core.errors import SpecError

Change = Callable[[str], str]
Write = Callable[[Change, Change], str]
"""Renders the template with one change to the texts that it is given, another to the keys of their mappings."""

_LONG = 500  # characters of a text that is marked throughout
_UNUSED = [chr(code) for code in range(0xFDD1, 0xFDF0)]  # noncharacters: no text has them but an attacker's


def spare(text: str, count: int = 1) -> list[str]:
    """Characters that do not occur in `text`; SpecError if they are all used."""
    found = [char for char in _UNUSED if char not in text][:count]
    if len(found) < count:
        raise SpecError("a text uses the noncharacters U+FDD1 to U+FDEF; leave them out, they stand for nothing")
    return found


def marked(name: str, mark: str) -> str:
    """A control token's name with a mark in it, which no longer is one."""
    return name[0] + mark + name[1:]


def pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Finds these names, the longest of those that begin at one place, as tokenizers do."""
    return re.compile("|".join(map(re.escape, sorted(filter(None, names), key=len, reverse=True))) or r"(?!)")


def own(
    write: Write, names: re.Pattern[str], controls: frozenset[str], sought: Iterable[str]
) -> tuple[str, str | None]:
    """The rendered text and a mark: control tokens that carry it are the template's, all others are text.

    No mark where all are the template's. `names` finds every added token, of which `controls` are the control tokens;
    `sought` are texts that the template looks for. SpecError if it treats control tokens in a text in a way of its own.
    """
    plain = write(same, same)
    found = [match[0] for match in names.finditer(plain) if match[0] in controls]
    if not found:
        return plain, None
    foreign, mine = spare(plain, 2)

    def guard(text: str) -> str:
        return names.sub(lambda m: marked(m[0], foreign) if m[0] in controls else m[0], text)

    for change in (_dense(guard, foreign, controls, [word for word in sought if guard(word) == word]), guard):
        try:
            told = write(change, guard)
        except SpecError:
            continue
        if told.replace(foreign, "") == plain:
            break
    else:
        raise SpecError(
            "a message holds a control token's name, and this chat template treats it in a way of its own: take it out"
        )
    said = names.sub(lambda m: marked(m[0], mine) if m[0] in controls else m[0], told).replace(foreign, "")
    return (plain, None) if said.count(mine) == len(found) else (said, mine)


def same(text: str) -> str:
    """No change."""
    return text


def _dense(guard: Change, mark: str, controls: Iterable[str], sought: Iterable[str]) -> Change:
    """Puts the mark between any two characters that are no blanks, but not into the words that are sought; in a long
    text only where signs stand as they do in a control token."""
    words = tuple(word for word in sought if word.strip())
    whole = pattern(words).pattern
    seam = re.compile(rf"((?:{whole})|\S)(?=\S)")
    pairs = {name[i : i + 2] for name in controls for i in range(len(name) - 1)}
    telling = [pair for pair in pairs if not pair.isalnum() and pair not in words]
    near = "|".join(f"{re.escape(pair[0])}(?={re.escape(pair[1])})" for pair in telling) or r"(?!)"
    kept = frozenset(word for word in words if len(word) > 1)
    rare = re.compile(f"{pattern(kept).pattern}|{near}", re.I)

    def change(text: str) -> str:
        if not text:
            return text
        if len(text) > _LONG:
            inner = rare.sub(lambda m: m[0] if m[0] in kept else m[0] + mark, guard(text))
        else:
            inner = seam.sub(rf"\1{mark}", guard(text))
        before = "" if text[0].isspace() or text.startswith(words) else mark
        return before + inner + ("" if text[-1].isspace() or text.endswith(words) else mark)

    return change


def changed(value: Any, text: Change, key: Change) -> Any:
    """`value` with every text in it changed, at any depth."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return {key(k) if isinstance(k, str) else k: changed(v, text, key) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [changed(part, text, key) for part in value]
    return value
