"""Tables that are made from results files: each stands between two marks, as `tables.toml` beside its page declares it.

    [[study]]                                    of study.md, between <!-- table: depth --> and <!-- table end -->
    name = "depth"
    file = "shape.json"
    at = "workloads.code.depth[depth=$1]"        a path before all others; $1 is a row's first text
    head = ["depth", "tau", "speed-up"]
    rows = [["1"], ["2"]]
    cells = ["$1", "{tau as .2f}", "{speedup as range}, {verdict}"]

A place is `{path as form}` or `{file.json: path as form}`; `@` is `at` itself, and a path that begins with `/` leaves
`at` out. A form is Python's, or one of `[forms]`: a cell for what lies at the path.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from forerun.core.errors import LoadError, SpecError
from forerun.lab.claims.paths import follow, steps_of
from forerun.lab.claims.prose import blanked

DECLARED = "tables.toml"
_MARK = re.compile(r"^<!-- table: (?P<name>.*?) -->\n(?P<rows>.*?)^<!-- table end -->$", re.S | re.M)
_HALF = re.compile(r"<!-- table(?:: | end)")
_PLACE = re.compile(
    r'\{(?:(?P<file>[\w./-]+\.json):\s*)?(?P<path>(?:"[^"]*"|[^"{}\s])+)(?:\s+as\s+(?P<form>[^{}]+))?\}'
)

Files = Callable[[str], Mapping[str, Any]]
"""A whole results file by its name."""


@dataclass(frozen=True, slots=True)
class Table:
    """One declaration."""

    name: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    cells: Sequence[str]
    file: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """A table of a page: where its rows are, what they should be, and the file behind each of its figures."""

    name: str
    start: int
    end: int
    line: int
    """The first line between the marks, from 1."""
    lines: tuple[str, ...]
    files: tuple[str, ...]


def made(page: Path, text: str, files: Files) -> list[Made]:
    """The tables of a page, made anew; SpecError for marks and declarations that do not fit."""
    tables, forms = _declared(page)
    prose = blanked(text, False)
    marks = list(_MARK.finditer(prose))
    names = [mark["name"] for mark in marks]
    if sorted(names) != sorted(table.name for table in tables) or 2 * len(names) != len(_HALF.findall(prose)):
        there, said = ", ".join(names) or "none", ", ".join(table.name for table in tables) or "none"
        raise SpecError(f"tables between marks: {there}; in {DECLARED}: {said}; each must be once in both")
    by_name = {table.name: table for table in tables}
    return [_made(by_name[mark["name"]], forms, mark, files) for mark in marks]


def _made(table: Table, forms: Mapping[str, str], mark: re.Match[str], files: Files) -> Made:
    writer = Writer(forms, files)
    rows = [[writer.cell(filled(cell, row), _own(table, row)) for cell in table.cells] for row in table.rows]
    lines = [_row(table.head), "|---" * len(table.head) + "|", *map(_row, rows)]
    line = mark.string.count("\n", 0, mark.start("rows")) + 1
    return Made(table.name, *mark.span("rows"), line, tuple(lines), tuple(writer.used))


def stale(text: str, table: Made) -> Iterator[tuple[int, str]]:
    """Lines that are not what the files say, and what is wrong with them."""
    there = text[table.start : table.end].splitlines()
    for i, (got, true) in enumerate(zip_longest(there, table.lines)):
        if got != true:
            yield table.line + i, f"table {table.name}: {_row_said(got)} stands there, the files say {_row_said(true)}"


def rewritten(text: str, tables: Sequence[Made]) -> str:
    """The text with these tables."""
    for table in reversed(tables):
        text = text[: table.start] + "".join(f"{line}\n" for line in table.lines) + text[table.end :]
    return text


def _declared(page: Path) -> tuple[list[Table], Mapping[str, str]]:
    """What is declared of a page, and the forms of all."""
    path = page.with_name(DECLARED)
    if not path.exists():
        return [], {}
    try:
        whole = tomllib.loads(path.read_text(encoding="utf-8"))
        return [Table(**fields) for fields in whole.get(page.stem, ())], whole.get("forms", {})
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise LoadError(f"{path} cannot be read: {error}") from None


class Writer:
    """Writes cells, and knows which files they used."""

    def __init__(self, forms: Mapping[str, str], files: Files) -> None:
        self._forms, self._files = forms, files
        self.used: list[str] = []

    def cell(self, text: str, table: Table) -> str:
        """A cell's text, its places filled with what is at their paths."""
        filled = _PLACE.sub(lambda place: self._place(place, table), text)
        if "{" in filled or "}" in filled:
            raise SpecError(f"table {table.name}: {text!r} has a place that cannot be read: it is {{path as .2f}}")
        return filled

    def _place(self, place: re.Match[str], table: Table) -> str:
        file, form = place["file"] or table.file, place["form"] or ""
        said = place["path"]
        path = table.at if said == "@" else said if said.startswith("/") else ".".join(filter(None, (table.at, said)))
        if form in self._forms:
            return self.cell(self._forms[form], replace(table, file=file, at=path))
        value = follow(self._files(file), steps_of(path))
        self.used.append(file)
        if not isinstance(value, str | int | float):
            raise SpecError(f"table {table.name}: {file}: {path} is no single value")
        try:
            return format(value, form)
        except ValueError as error:
            raise SpecError(f"table {table.name}: {form!r} cannot write {value!r}: {error}") from None


def _own(table: Table, row: Sequence[str]) -> Table:
    return replace(table, file=filled(table.file, row), at=filled(table.at, row))


def filled(text: str, row: Sequence[str]) -> str:
    """A text with the texts of a row in the places of $1, $2 and so on; SpecError for more than it has."""
    try:
        return re.sub(r"\$([1-9])", lambda match: row[int(match[1]) - 1], text)
    except IndexError:
        raise SpecError(f"{text!r} asks for more than the row {list(row)} has") from None


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _row_said(line: str | None) -> str:
    return "no row" if line is None else repr(line)
