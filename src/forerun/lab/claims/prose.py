"""A text without its code: what stands in fences, indented blocks, code spans, scripts and styles is blanked.

Lengths and lines stay, so that offsets hold in both. Lists move the border of indented code, as in CommonMark.
"""

from __future__ import annotations

import re

_SCRIPT = re.compile(r"<(script|style|textarea)\b.*?</\1\s*>", re.S | re.I)
_MARKS = r"[ \t]*(?:>[ \t]?|(?:[-*+]|[0-9]{1,9}[.)])[ \t]+)*"
_FENCE = re.compile(rf"{_MARKS}(?P<fence>`{{3,}}(?=[^`\n]*$)|~{{3,}})")
_ITEM = re.compile(r"(?P<lead>[ \t]*(?:[-*+]|[0-9]{1,9}[.)])(?:[ \t]{1,4}(?=\S)|[ \t]|$))")
_NEW_BLOCK = r"\n[ \t]*(?:\n|[#>|]|[-*+][ \t]|[0-9]+[.)][ \t])"
_SPAN_OR_COMMENT = re.compile(
    r"(?<!\\)<!--.*?(?:-->|\Z)"
    rf"|(?<![`\\])(?P<ticks>`+)(?!`)(?P<code>(?:(?!{_NEW_BLOCK}).)+?)(?<!`)(?P=ticks)(?!`)",
    re.S,
)
_ROW = re.compile(r"(^[ \t]*\|[^\n]*)", re.M)
_CELL = re.compile(r"((?<!\\)\|)")


def blanked(text: str, html: bool) -> str:
    """The text with spaces where it is code; comments stay."""
    if html:
        return _SCRIPT.sub(lambda match: spaces(match[0]), text)
    parts = _ROW.split(_blocks(text))
    for i, part in enumerate(parts):  # the odd ones are rows of tables: a lone ` in a cell ends with the cell
        cells = _CELL.split(part) if i % 2 else [part]
        parts[i] = "".join(_SPAN_OR_COMMENT.sub(_code, cell) for cell in cells)
    return "".join(parts)


def _code(match: re.Match[str]) -> str:
    return spaces(match[0]) if match["code"] else match[0]


def spaces(text: str) -> str:
    """As many spaces, in as many lines."""
    return re.sub(r"[^\n]", " ", text)


def _blocks(text: str) -> str:
    """Markdown without its code blocks."""
    lines = text.split("\n")
    fence, comment = "", False
    code = blank = True  # whether the line before was indented code, or empty
    inner = 0  # where the text of the list item above begins
    for i, line in enumerate(lines):
        bare = line.strip()
        if fence:
            lines[i] = spaces(line)
            if re.fullmatch(rf"[ \t>]*{fence[0]}{{{len(fence)},}}[ \t\r]*", line):
                fence = ""
            continue
        if comment:
            comment = "-->" not in line
            continue
        indent = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
        if bare and indent >= inner + 4 and (blank or code):
            lines[i], code, blank = spaces(line), True, False
            continue
        if match := _FENCE.match(line.rstrip("\r")):
            fence, lines[i] = match["fence"], spaces(line)
        elif match := _ITEM.match(line):
            inner = len(match["lead"].expandtabs(4))
        elif bare and indent < inner and blank:
            inner = 0
        shown = re.sub(r"(`+).*?\1", "", line)
        comment = not fence and shown.rfind("<!--") > shown.rfind("-->")
        code, blank = code and not bare, not bare
    return "\n".join(lines)
