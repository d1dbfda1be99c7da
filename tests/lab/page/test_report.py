"""Reports: a section a file, warnings where figures must not be trusted or compared, errors that name the file."""

import re
from html.parser import HTMLParser

import pytest

from forerun.core.errors import LoadError, SpecError
from forerun.lab.page import charts, markdown, web
from forerun.lab.page.report import Picture, different, make
from forerun.lab.page.visible import visible
from forerun.lab.run import load_result
from forerun.lab.views import Note, Table


def test_a_section_has_tables_pictures_and_its_bench(results):
    report = make([results()])
    (found,) = report.sections
    assert found.title == "domains: tiny"
    assert [type(part) for part in found.parts] == [Note, Table, Note, Picture]
    assert (found.warnings, report.warnings) == ((), ())
    html = web.page(report)
    for said in (
        "2.25 (2.00..2.50)",
        "plain decoding",
        "Some CPU",
        "0123456789abcdef0123",
        "00ff",
        found.digest,
        "<svg ",
    ):
        assert said in html
    assert "warning" not in html[html.index("<body>") :]
    assert not re.search(r"(src|href)=\"(?!#)|url\((?!#)", html)


@pytest.mark.parametrize(
    ("bench", "figures", "hint"),
    [
        ({}, {"noise": {"value": 1.1, "low": 1.0, "high": 1.2, "of": 9, "calm": False}}, "not quiet"),
        ({"dirty": True}, {}, "changed since the commit"),
        ({"load_average": [9.0, 1.0, 1.0]}, {}, "load average was 9.0 on 4 cores"),
        ({"resumed_units": 3}, {}, "3 units"),
    ],
)
def test_what_must_be_known_is_a_warning(results, bench, figures, hint):
    report = make([results(bench=bench, figures=figures)])
    (said,) = report.sections[0].warnings
    assert hint in said
    assert "class=warning" in web.page(report)
    assert "**Warning.**" in markdown.pages(report, "r")[0]


def test_files_of_different_benches_are_said_to_be_so(results):
    first = load_result(results("a"))
    assert list(different([first, load_result(results("b", bench={"date": "2026-02-02T00:00:00Z"}))])) == []
    for change, what in (
        ({"processor": "Other"}, "machine"),
        ({"commit": "f" * 40}, "code"),
        ({"fingerprint": "aa"}, "model"),
        ({"threads": 2}, "stack"),
    ):
        (said,) = different([first, load_result(results("b", bench=change))])
        assert f"one {what}" in said
        assert "a.json" in said
        assert "b.json" in said


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"schema": 2}, "schema 2"),
        ({"experiment": "domain"}, "did you mean 'domains'"),
        ({"experiment": "shape"}, "not those of 'shape'"),
        ({"samples": []}, "samples"),
        ({"answers": {"batch": ""}}, "answers.batch"),
    ],
)
def test_files_that_cannot_be_shown_are_named(results, changes, hint):
    path = results("odd", **changes)
    with pytest.raises(LoadError, match=hint) as caught:
        make([results("fine"), path])
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_shown_once(results):
    with pytest.raises(SpecError, match="twice"):
        make([results(), results()])


def test_without_matplotlib_the_rest_is_there(results, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(charts, "import_module", missing)
    (found,) = make([results()]).sections
    assert [type(part) for part in found.parts] == [Note, Table, Note, Note]
    assert "forerun[lab]" in found.parts[-1].text


class Balanced(HTMLParser):
    """Every element that is opened is closed, in order; the names of all of them."""

    VOID = ("meta", "input", "br", "link")

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.text = [], set(), ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


EVIL = "<script>x</script> | `a` *b* [l](u) \u202e"


def evil(results):
    arm = {"drafted": 0, "same_text": 1, "answers": 1, "acceptance_by_position": []}
    arm |= dict.fromkeys(("ms_per_token", "speedup", "speedup_answer", "verdict", "tau", "acceptance", "draft_share"))
    work = {EVIL: {"prompts": 1, "noise": None, "arms": {"plain": arm, EVIL: arm}}}
    figures = {"workloads": work, "noise": None, "left_out": [EVIL]}
    return results("<b>", bench={"model": EVIL, "processor": EVIL}, figures=figures, answers={"relative_to": EVIL})


def test_names_are_never_markup_in_html(results):
    html = web.page(make([evil(results)]))
    found = Balanced(html)
    assert found.open == []
    assert not {"script", "b"} & found.tags
    assert found.text.count(visible(EVIL)) > 6
    assert "\u202e" not in html


def test_names_are_never_markup_in_markdown(results):
    text, _ = markdown.pages(make([evil(results)]), "r")
    assert "<script" not in re.sub(r"\\.", "", text)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert "\u202e" not in text


def test_markdown_has_its_pictures_beside_it(results):
    report = make([results("a"), results("b", bench={"cores": 2})])
    text, pictures = markdown.pages(report, "my report")
    assert list(pictures) == ["my report-1-1.svg", "my report-2-2.svg"]
    assert re.findall(r"!\[.*?\]\((.*?)\)", text) == ["my%20report-1-1.svg", "my%20report-2-2.svg"]
    assert all(picture.startswith("<?xml") for picture in pictures.values())
    assert "> **Warning.** Not all files are of one machine" in text
    assert "Not all files are of one machine" in web.page(report)
    assert "| ngram | 4.50 | 2.25 (2.00..2.50) |" in text
