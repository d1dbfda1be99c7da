"""The page of a trace: one file, closed against whatever a model may say."""

import json
import re
from html.parser import HTMLParser

import pytest

from forerun.lab.sample import Sample
from forerun.lab.trace.page import page
from forerun.lab.trace.record import Beside, Recording

EVIL = (
    "</script><script>alert(1)</script>",
    "\u202egnp.exe",
    "<!--<script>",
    "\x00\x1b[31m",
    "&lt;",
    "'\"`${x}",
    "\u2028",
)
BENCH = {
    "model": "<b>m</b>",
    "command": "forerun lab trace '<i>'",
    "date": "2026-01-01T00:00:00Z",
    "commit": "",
    "dirty": True,
}
SAMPLE = Sample(
    1, 6, 1.0, 0.5, 1.0, 6, 9, {}, 7, 4, 6, 3, (2, 2), (2, 1), "d", ("".join(EVIL),)
)  # fmt: skip
STEP = {
    "guessed": 1, "stood": 0, "plan": [4, 8, 2, 0.0], "law": "chosen", "read": 3,
    "ms": {"draft": 0.1, "score": 2.0, "verify": 0.2},
    "nodes": [[0, -1, None, None, None, 0], [1, 0, 0.5, 0.25, 1.5, 1]], "rows": {0: [[2, 0.5], [1, 0.25]]},
    "path": [], "bonus": [2, 0.5], "gain": 1,
}  # fmt: skip
STORY = {"tokens": list(EVIL), "steps": [STEP] * 7, "words": [[text, i, i, i % 2] for i, text in enumerate(EVIL)]}


class Parsed(HTMLParser):
    """Elements with their attributes, and the texts of scripts."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.scripts, self._open = [], [], None
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self._open == "script":
            self.scripts[-1] += data

    def handle_endtag(self, tag):
        self._open = None


@pytest.fixture(scope="module")
def html():
    found = Recording("ngram:<u>", "auto", True, SAMPLE, STORY, Beside("plain<", 1.0, 2.0, 5))
    return page(found, "ask </pre><script>", {"temperature": 0.7, "seed": 3}, BENCH)


def test_nothing_the_model_says_is_markup(html):
    parsed = Parsed(html)
    assert [tag for tag, _ in parsed.tags].count("script") == len(parsed.scripts) == 2
    assert not {"b", "i", "u"} & {tag for tag, _ in parsed.tags}
    data = json.loads(parsed.scripts[0])
    assert data["tokens"] == list(EVIL)
    assert not re.search(r"[^\x20-\x7e\n]", re.search(r'id="data">(.*?)</script>', html, re.S)[1])
    for char in "\u202e\x00\x1b\u2028":
        assert char not in html


def test_running_text_shows_what_cannot_be_seen(html):
    words = json.loads(Parsed(html).scripts[0])["words"]
    assert words[1][0] == "\\u{202e}gnp.exe"
    assert words[3][0] == "\\u{0}\\u{1b}[31m"
    assert [word[1:] for word in words] == [word[1:] for word in STORY["words"]]


def test_the_page_stands_alone(html):
    parsed = Parsed(html)
    policy = next(
        attrs["content"] for tag, attrs in parsed.tags if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'")
    assert not [attrs for _, attrs in parsed.tags if {"src", "href"} & set(attrs)]
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|innerHTML", html)
    outside = set(re.findall(r"https?://[^\"'\s<]+", html))
    assert outside == {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_every_element_the_script_asks_for_is_there(html):
    parsed = Parsed(html)
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    script = parsed.scripts[1]
    wanted = set(re.findall(r'getElementById\("(\w+)"\)', script))
    wanted |= set(re.findall(r'"(\w+)"', re.search(r"= \[(.*?)\]\.map\(id =>", script)[1]))
    assert wanted <= set(ids)
    style = html[html.index("<style>") : html.index("</style>")]
    for kind in ("stood", "refused", "below", "end", "dropped", "bonus", "root"):
        assert f".f-{kind} " in style
    for name in set(re.findall(r"var\(--([a-z-]+)\)", html)):
        assert f"--{name}:" in style


def test_facts_and_provenance_are_told(html):
    for said in ("7", "1.75", "3 of 6 stand", "temperature 0.7, seed 3", "2.00 times as fast", "parts at character 5"):
        assert said in html
    assert "forerun lab trace &#x27;&lt;i&gt;&#x27;" in html
    assert "none: an installed package" in html
    assert "impression" in html
    assert "prefers-color-scheme: dark" in html


def test_five_hundred_steps_are_a_small_page():
    steps = [STEP] * 500
    found = Recording("ngram", "auto", True, SAMPLE, {**STORY, "steps": steps})
    assert len(page(found, "x", {}, BENCH)) < 500 * 400


def test_a_lossy_verifier_is_said():
    found = Recording("ngram", "typical", False, SAMPLE, STORY)
    assert "lossy" in page(found, "x", {}, BENCH)
    assert "times as fast" not in page(found, "x", {}, BENCH)
