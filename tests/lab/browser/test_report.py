"""The page of a report as a browser draws it."""

from pathlib import Path

import pytest

from forerun.lab.page.report import make
from forerun.lab.page.web import page

from .looks import CONTRAST, TOO_WIDE

RESULTS = Path(__file__).parents[3] / "results"


@pytest.fixture(scope="module")
def report():
    """Of shipped files: wide tables, charts of each kind, long names."""
    pytest.importorskip("matplotlib")
    return page(make([RESULTS / f"{name}.json" for name in ("heads_light", "curve_bf16")]))


@pytest.mark.parametrize(("width", "dark"), [(360, False), (360, True), (1200, True)])
def test_242_a_report_can_be_read_on_any_paper_and_width(browser, report, width, dark):
    browser.show(report, width=width, dark=dark)
    browser.run("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert browser.run("innerWidth") == width
    assert browser.run(TOO_WIDE) == []
    assert browser.run(CONTRAST) == []


@pytest.mark.parametrize("width", [360, 1200])
def test_242_the_words_of_charts_can_be_read(browser, report, width):
    """Letters of a chart are as large as they are drawn, however narrow the window is: charts are scrolled instead."""
    browser.show(report, width=width)
    small = browser.run(
        """[...document.querySelectorAll("figure svg text")].filter(text => {
          const box = text.getBoundingClientRect();
          return Math.min(box.width, box.height) < 8 && text.textContent.trim().length > 2;
        }).map(text => text.textContent)"""
    )
    assert browser.run("document.querySelectorAll('figure svg text').length") > 50
    assert small == []
