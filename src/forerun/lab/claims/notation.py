"""Claims: figures in a text that say which results file they come from, and where they lie in it.

    Markdown   2.37x<!-- domains.json: workloads.code.arms.ngram.speedup.value -->
    HTML       <data value="2.3712" data-claim="domains.json: workloads.code.tau">2.37</data>
    a run      <!-- run: domains.json 3f2a9c1b -->

A claim is the number right before the comment, or the text of the element; both forms are read in both kinds of text.
` in ms` behind the path says what the file holds where no key does. What is code is text, not a claim.
"""

from __future__ import annotations

import bisect
import html as entities
import re
from collections.abc import Iterator
from dataclasses import dataclass

from forerun.lab.claims import units
from forerun.lab.claims.elements import Element, elements
from forerun.lab.claims.prose import blanked, spaces
from forerun.lab.claims.written import CLOSERS

_FILE = r"[\w-][\w.-]*(?:/[\w-][\w.-]*)*\.json"
_PATH = r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+'
CLAIM = re.compile(rf"\s*(?P<file>{_FILE})\s*:\s*(?P<path>{_PATH})(?:\s+in\s+(?P<unit>\S.*?))?\s*")
PIN = re.compile(rf"\s*run:\s*(?P<file>{_FILE})\s+(?P<digest>[0-9a-f]{{8}})\s*")
_MEANT = re.compile(r"\s*(?:run:|\S+\.json\b)")
_BEHIND_NUMBER = re.compile(rf"[0-9]{CLOSERS}(?:\s?{units.TEXT})?{CLOSERS}$")
COMMENT = re.compile(r"(?<!\\)<!--(?P<body>.*?)(?P<end>-->|\Z)", re.S)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_INLINE = r"</?(?:a|abbr|b|code|em|i|small|span|strong|sub|sup|tspan)\b[^<>]*>"
_FIGURE = re.compile(
    r"(?<![^\W_])(?<![.,])[0-9][0-9,.]*\s?(?:[x×](?!\s?[0-9])|ms(?:/\w+)?+|%|tokens/s)(?!\w)(?![*_`\s]*\0)"
)
_BEFORE, _AFTER = 300, 100  # characters of a text that are looked at around a claim


@dataclass(frozen=True, slots=True)
class Claim:
    """One figure of a text, and where it is said to come from."""

    line: int
    file: str
    path: str
    unit: str
    """What the file holds, where the text says so; else empty."""
    before: str
    """The text that ends with the figure; of an element, all of its text."""
    after: str
    """What follows, for a unit that stands there."""
    whole: bool = False
    """Whether `before` is the figure and nothing else."""
    value: str | None = None
    """An element's `value`: the file's own number."""


@dataclass(frozen=True, slots=True)
class Pin:
    """The run that a text is about: the first 8 hex digits of the results file's SHA-256. Offsets are the comment's."""

    line: int
    file: str
    digest: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Flaw:
    """What seems to be meant as a claim or a pin and cannot be read, or a figure that carries no claim."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Marks:
    """All that is marked up in a text, by line."""

    claims: tuple[Claim, ...]
    pins: tuple[Pin, ...]
    flaws: tuple[Flaw, ...]
    unmarked: tuple[Flaw, ...]
    """Numbers followed by x, ms, % or tokens/s that carry no claim."""


def claims_of(text: str, html: bool = False) -> list[Claim]:
    """The claims of a Markdown or HTML text in order."""
    return list(marks_of(text, html).claims)


def marks_of(text: str, html: bool = False) -> Marks:
    """Claims, pins, flaws and unmarked figures of a Markdown or HTML text."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    prose = blanked(text, html)
    found: list[Claim | Pin | Flaw] = []
    claimed = set()  # where a claim's comment begins
    for match in COMMENT.finditer(prose):
        if mark := _of_comment(text, match, _line(starts, match.start())):
            found.append(mark)
            claimed.add(match.start())
    bare = COMMENT.sub(lambda match: spaces(match[0]), prose)
    tagged = elements(bare, "data-claim", starts)
    found += [_of_element(text, element, _line(starts, element.start)) for element in tagged]
    if (unread := len(re.findall(r"\bdata-claim\s*=", bare)) - len(tagged)) > 0:
        found.append(Flaw(1, f"{unread} data-claim= stand in no tag that can be read"))
    found.sort(key=lambda mark: mark.line)
    return Marks(
        tuple(mark for mark in found if isinstance(mark, Claim)),
        tuple(mark for mark in found if isinstance(mark, Pin)),
        tuple(mark for mark in found if isinstance(mark, Flaw)),
        tuple(_unmarked(prose, claimed, tagged, starts)),
    )


def _line(starts: list[int], offset: int) -> int:
    return bisect.bisect_right(starts, offset)


def _of_comment(text: str, match: re.Match[str], line: int) -> Claim | Pin | Flaw | None:
    """What a comment is; None for one that has nothing to do with figures."""
    body, start, end = match["body"], match.start(), match.end()
    before = entities.unescape(text[max(0, start - _BEFORE) : start])
    if match["end"] and (pin := PIN.fullmatch(body)):
        return Pin(line, pin["file"], pin["digest"], start, end)
    if match["end"] and (claim := CLAIM.fullmatch(body)):
        return Claim(line, claim["file"], claim["path"], claim["unit"] or "", before, _after(text, end))
    if _MEANT.match(body) or _BEHIND_NUMBER.search(before):
        return _unreadable(line, f"<!--{body}{match['end']}")
    return None


def _of_element(text: str, element: Element, line: int) -> Claim | Flaw:
    claim = CLAIM.fullmatch(element.attrs["data-claim"])
    if element.end < 0:
        return Flaw(line, f"<{element.tag} data-claim> has no end tag of its own, so no text that could be a claim")
    if not claim:
        return _unreadable(line, element.attrs["data-claim"])
    return Claim(
        line,
        claim["file"],
        claim["path"],
        claim["unit"] or "",
        element.text.strip(),
        _after(text, element.end),
        whole=True,
        value=element.attrs.get("value"),
    )


def _unreadable(line: int, got: str) -> Flaw:
    shown = " ".join(got.split())
    shown = shown if len(shown) <= 70 else shown[:70] + "…"
    forms = "a claim is `domains.json: workloads.code.tau`, a run `run: domains.json 3f2a9c1b`"
    return Flaw(line, f"{shown!r} cannot be read: {forms}")


def _after(text: str, end: int) -> str:
    """The text behind a claim, up to the next tag that is not one within a line."""
    match = re.match(rf"(?:{_INLINE}|[^<])*", text[end : end + _AFTER])
    return entities.unescape(re.sub(_INLINE, "", match[0] if match else ""))


def _unmarked(prose: str, claimed: set[int], tagged: list[Element], starts: list[int]) -> Iterator[Flaw]:
    """Figures that are in no element that is a claim, and that no claim's comment (one begins at `claimed`) follows."""
    plain = COMMENT.sub(lambda match: ("\0" if match.start() in claimed else " ") + spaces(match[0])[1:], prose)
    plain = _TAG.sub(lambda match: spaces(match[0]), plain)
    spans = iter([(element.start, element.end) for element in tagged])
    start = end = -1
    for match in _FIGURE.finditer(plain):
        while end <= match.start() and (span := next(spans, None)):
            start, end = span
        if not start <= match.start() < end:
            yield Flaw(_line(starts, match.start()), f"{' '.join(match[0].split())} carries no claim")
