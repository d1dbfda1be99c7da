"""A report as Markdown: tables in the text, charts as SVG files beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from forerun.lab.page import charts
from forerun.lab.page.html import facts
from forerun.lab.page.report import Picture, Report, Section
from forerun.lab.page.visible import visible
from forerun.lab.views import Note, Table, View


def pages(report: Report, stem: str) -> tuple[str, dict[str, str]]:
    """The text, and its pictures by file name; their names begin with `stem`."""
    pictures: dict[str, str] = {}
    head = "# Measurements\n\nEach section is one results file: its figures belong to its bench and to no other."
    sections = [_section(found, stem, i, pictures) for i, found in enumerate(report.sections, start=1)]
    return "\n\n".join([head, *_warnings(report.warnings), *sections]) + "\n", pictures


def _section(found: Section, stem: str, i: int, pictures: dict[str, str]) -> str:
    result = found.result
    source = f"`{visible(result.path.name)}` ({found.digest}), {plain(str(result.bench['date']))}"
    answers = "\n".join(_said(name, said) for name, said in result.answers.items())
    parts = []
    for part in found.parts:
        if isinstance(part, Picture):
            name = f"{stem}-{i}-{len(pictures) + 1}.svg"
            pictures[name] = charts.alone(part.svg)
            parts.append(f"![{plain(part.chart.title)}]({name.replace(' ', '%20')})")
        else:
            parts.append(_part(part))
    bench = "\n".join(_said(name, said) for name, said in facts(result.bench))
    whole = [f"## {plain(found.title)}", source, *_warnings(found.warnings), answers, *parts]
    return "\n\n".join([*whole, f"### Where this comes from\n\n{bench}"])


def _said(name: str, said: object) -> str:
    return f"- {plain(name.replace('_', ' '))}: {plain(str(said))}"


def _warnings(warnings: Sequence[str]) -> list[str]:
    return [f"> **Warning.** {plain(said)}" for said in warnings]


def _part(part: View) -> str:
    if isinstance(part, Note):
        return plain(part.text)
    assert isinstance(part, Table)
    lines = [
        _row(part.heads),
        _row(["---", *["---:"] * (len(part.heads) - 1)]),
        *(_row([plain(cell) for cell in row]) for row in part.rows),
    ]
    return f"**{plain(part.title)}**\n\n" + "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def plain(text: str) -> str:
    """Text that Markdown leaves as it is, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>|~$#])", r"\\\1", visible(text))
