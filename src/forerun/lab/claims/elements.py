"""Elements of an HTML text that carry one attribute, with the text in them: found in whatever a browser would read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)


@dataclass(slots=True)
class Element:
    """An element; offsets are into the text that was read."""

    tag: str
    start: int
    attrs: dict[str, str]
    text: str = ""
    """All text in it, tags left out and entities resolved."""
    end: int = -1
    """Behind its end tag; -1 if it has none, or the end of an element around it came first."""


def elements(text: str, attribute: str, starts: Sequence[int]) -> list[Element]:
    """Elements with `attribute`, in order; `starts` are the offsets at which the lines of `text` begin."""
    reader = _Reader(text, attribute, starts)
    reader.feed(text)
    reader.close()
    return reader.found


@dataclass(slots=True)
class _Open:
    tag: str
    element: Element | None
    parts: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self, text: str, attribute: str, starts: Sequence[int]) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Element] = []
        self._text, self._attribute, self._starts = text, attribute, starts
        self._open: list[_Open] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = self._element(tag, attrs)
        if tag not in _VOID:
            self._open.append(_Open(tag, element))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._element(tag, attrs)  # `<data/>` holds nothing, and has no end

    def handle_data(self, data: str) -> None:
        for opened in self._open:
            if opened.element:
                opened.parts.append(data)

    def handle_endtag(self, tag: str) -> None:
        at = next((i for i in reversed(range(len(self._open))) if self._open[i].tag == tag), None)
        if at is None:
            return
        if element := self._open[at].element:
            element.text = "".join(self._open[at].parts)
            element.end = self._text.find(">", self._offset()) + 1
        del self._open[at:]

    def _element(self, tag: str, attrs: list[tuple[str, str | None]]) -> Element | None:
        given = {name: value or "" for name, value in attrs}
        if self._attribute not in given:
            return None
        self.found.append(Element(tag, self._offset(), given))
        return self.found[-1]

    def _offset(self) -> int:
        line, column = self.getpos()
        return self._starts[line - 1] + column
