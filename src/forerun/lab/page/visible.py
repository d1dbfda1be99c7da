"""Texts made safe to look at: characters that would hide, reorder or break what stands around them become escapes."""

from __future__ import annotations

import unicodedata

_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # controls, formats (bidi marks, joiners), no characters at all


def visible(text: str, keep: str = "") -> str:
    """`text` with every character that cannot be seen, or that turns others around, written as `\\u{202e}`; those in
    `keep` stay. Models and files may say anything: a right-to-left mark would turn the page's own words around."""
    return "".join(char if char in keep or unicodedata.category(char) not in _UNSEEN else escape(char) for char in text)


def escape(char: str) -> str:
    """One character as an escape."""
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char, f"\\u{{{ord(char):x}}}")
