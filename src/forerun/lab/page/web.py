"""A report as one HTML page: tables, charts and provenance in one file."""

from __future__ import annotations

from forerun.lab.page import html
from forerun.lab.page.report import Picture, Report, Section
from forerun.lab.views import Note, Table, View


def page(report: Report) -> str:
    """The whole page."""
    entries = "".join(
        f'<li><a href="#s{i}">{html.text(found.title)}</a>, {html.text(found.result.path.name)}</li>\n'
        for i, found in enumerate(report.sections, start=1)
    )
    sections = "\n".join(_section(found, i) for i, found in enumerate(report.sections, start=1))
    body = f"""<header>
<h1>Measurements</h1>
<p class=sub>Each section is one results file: its figures belong to its bench and to no other.</p>
{_warnings(report.warnings)}<nav><ul>
{entries}</ul></nav>
</header>
<main>
{sections}
</main>"""
    return html.document("forerun: measurements", body, [html.asset("forerun.lab.page", "page.css")])


def _section(found: Section, i: int) -> str:
    answers = "".join(
        f"<dt>{html.text(name.replace('_', ' '))}</dt><dd>{html.text(said)}</dd>\n"
        for name, said in found.result.answers.items()
    )
    parts = "\n".join(map(part, found.parts))
    source = f"{found.result.path.name} ({found.digest}), {found.result.bench['date']}"
    return f"""<section id="s{i}">
<h2>{html.text(found.title)}</h2>
<p class=sub>{html.text(source)}</p>
{_warnings(found.warnings)}<dl class=answers>
{answers}</dl>
{parts}
{html.provenance(found.result.bench)}</section>"""


def _warnings(warnings: tuple[str, ...]) -> str:
    return "".join(f"<p class=warning>{html.text(said)}</p>\n" for said in warnings)


def part(shown: View | Picture) -> str:
    """One view as HTML."""
    if isinstance(shown, Note):
        return f"<p>{html.text(shown.text)}</p>"
    if isinstance(shown, Picture):
        return f"<figure class=wide>{shown.svg}</figure>"
    assert isinstance(shown, Table)
    return _table(shown)


def _table(table: Table) -> str:
    heads = "".join(f"<th scope=col>{html.text(head)}</th>" for head in table.heads)
    rows = "".join(f"<tr>{''.join(f'<td>{html.text(cell)}</td>' for cell in row)}</tr>\n" for row in table.rows)
    return f"""<div class=wide><table>
<caption>{html.text(table.title)}</caption>
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}</tbody></table></div>"""
