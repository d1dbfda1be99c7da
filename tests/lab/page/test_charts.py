"""Charts: SVG that can be parsed, the same for the same chart, with every label as text."""

import re
import xml.etree.ElementTree as ET

import pytest

from forerun.core.errors import SpecError
from forerun.lab.page import charts
from forerun.lab.views import Chart, Series

pytest.importorskip("matplotlib")
NAMES = ("code", "русский", "日本", "$x_1$ & <b>", "\u202edaeb")
BARS = Chart(
    "bars", "Speed-up <of> \"all\"", "", "times",
    (
        Series("ngram", NAMES, (1.2, 2.0, None, 1.0, 0.9), (1.1, 1.9, None, 1.0, 0.8), (1.3, 2.2, None, 1.1, 1.0)),
        Series("_hidden", NAMES[:2], (1.5, None)),
    ),
    level=1.0,
)  # fmt: skip
LINES = Chart("lines", "Tau", "depth", "tokens", (Series("a", (8, 1, 2, 4), (3.0, 1.0, None, 2.5)),), log_x=True)
STACK = Chart(
    "stack", "Time", "", "ms", (Series("draft", ("x", "y"), (1.0, None)), Series("score", ("y", "x"), (2.0, 3.0)))
)
SVG = "{http://www.w3.org/2000/svg}"


def parsed(chart):
    return ET.fromstring(charts.svg(chart))


def texts(chart):
    return ["".join(element.itertext()).strip() for element in parsed(chart).iter(f"{SVG}text")]


@pytest.mark.parametrize("chart", [BARS, LINES, STACK], ids=lambda chart: chart.kind)
def test_the_same_chart_is_the_same_bytes(chart):
    assert charts.svg(chart) == charts.svg(chart)


def test_labels_are_text_and_never_markup():
    found = texts(BARS)
    for label in ("code", "русский", "日本", "$x_1$ & <b>", "\\u{202e}daeb", 'Speed-up <of> "all"', "times", "ngram"):
        assert label in found
    assert "_hidden" in found
    assert parsed(BARS).attrib["aria-label"].split() == ["Speed-up", "of", "all"]


def test_bars_stand_for_what_was_measured_only():
    with_gap = charts.svg(BARS).count(charts.COLOURS[0])
    assert with_gap == 4 + 1  # four bars and the legend's
    assert charts.svg(BARS).count(charts.COLOURS[1]) == 1 + 1


def test_a_stack_stands_on_what_is_below():
    heights = {}
    for path in parsed(STACK).iter(f"{SVG}path"):
        colour = next((c for c in charts.COLOURS if c in path.attrib.get("style", "")), None)
        if colour and "clip-path" in path.attrib:
            numbers = [float(number) for number in re.findall(r"[\d.]+", path.attrib["d"])]
            ys = numbers[1::2]
            heights.setdefault(min(numbers[::2]), []).append((max(ys), min(ys)))
    x, y = (heights[place] for place in sorted(heights))
    assert x[1][0] == pytest.approx(x[0][1])
    assert x[1][0] - x[1][1] == pytest.approx(3 * (x[0][0] - x[0][1]))
    assert y[1][0] - y[1][1] == pytest.approx(2 * (x[0][0] - x[0][1]))


def test_a_doubling_axis_has_a_tick_at_every_point():
    assert [label for label in texts(LINES) if label in ("1", "2", "4", "8")] == ["1", "2", "4", "8"]


def test_several_charts_stand_in_one_page():
    first, second = charts.svg(BARS, "c1"), charts.svg(BARS, "c2")
    ids = [
        {element.attrib["id"] for element in ET.fromstring(svg).iter() if "id" in element.attrib}
        for svg in (first, second)
    ]
    assert ids[0]
    assert not ids[0] & ids[1]
    used = {e.attrib["{http://www.w3.org/1999/xlink}href"][1:] for e in ET.fromstring(first).iter(f"{SVG}use")}
    assert used <= ids[0]
    assert "<style" not in first
    assert "<metadata" not in first


def test_the_ink_is_the_papers():
    svg = charts.svg(BARS)
    assert "currentColor" in svg
    assert charts._INK not in svg
    file = charts.alone(svg)
    assert "prefers-color-scheme:dark" in file
    assert ET.fromstring(file.encode()).tag == f"{SVG}svg"


def test_nothing_to_draw_and_nothing_to_draw_with(monkeypatch):
    with pytest.raises(SpecError, match="nothing to draw in 'Empty'"):
        charts.svg(Chart("bars", "Empty", "", "", (Series("a", ("x",), (None,)),)))

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(charts, "import_module", missing)
    with pytest.raises(SpecError, match=r"forerun\[lab\]"):
        charts.svg(BARS)
