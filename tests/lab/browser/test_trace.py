"""The page of a trace as a browser draws it: colours, sizes and numbers."""

import re

import pytest

from forerun.lab.sample import Sample
from forerun.lab.trace.page import page
from forerun.lab.trace.record import Recording

from .looks import COLOUR, CONTRAST, TOO_WIDE

BENCH = {
    "model": "tiny",
    "command": "forerun lab trace x",
    "date": "2026-01-01T00:00:00Z",
    "commit": "",
    "dirty": False,
}
STOOD, REFUSED, BELOW, END, DROPPED = range(5)
MS = {"draft": 12.25, "score": 1234.5, "verify": 2.5, "commit": 1.0}


def node(parent, fate):
    return [parent + 1, parent, 0.5, 0.25, 1.5, fate]


TREE = {
    "plan": [4, 8, 2, 0.0], "law": "chosen", "read": 0, "ms": MS, "rows": {},
    "nodes": [node(-1, STOOD), node(0, STOOD), node(0, REFUSED), node(2, BELOW), node(0, DROPPED)],
    "path": [1], "bonus": [2, 0.5], "gain": 2, "guessed": 3, "stood": 1,
}  # fmt: skip
PLAIN = {**TREE, "nodes": [node(-1, STOOD)], "path": [], "gain": 1, "guessed": 0, "stood": 0, "read": 512}
ENDS = {
    **TREE, "nodes": [node(-1, STOOD), node(0, STOOD), node(1, END), node(2, END)], "path": [1, 2], "bonus": None,
    "gain": 1, "guessed": 3, "stood": 1,
}  # fmt: skip
STEPS = [PLAIN, *[TREE] * 120, ENDS]
TOKENS = [f" word{i}" for i in range(8)]
FATES = {
    "stood": ("stood-bg", "stood"), "refused": ("refused-bg", "refused"), "bonus": ("bonus-bg", "bonus"),
    "root": ("card", "soft"), "below": ("paper", "soft"), "dropped": ("paper", "soft"), "end": ("paper", "soft"),
}  # fmt: skip


@pytest.fixture(scope="module")
def html():
    gain, guessed, stood = (sum(step[name] for step in STEPS) for name in ("gain", "guessed", "stood"))
    sample = Sample(
        1, gain - 1, 1.0, 0.5, 1.0, len(STEPS), 9, {}, gain, len(STEPS), guessed, stood, (), (), "d", ("x",)
    )
    words = [[f"word{i % 8} ", i % 8, i, i % 2] for i in range(len(STEPS))]
    found = Recording(
        "suffix:width=3,nodes=15", "auto", True, sample, {"tokens": TOKENS, "steps": STEPS, "words": words}
    )
    return page(found, "a prompt", {}, BENCH)


@pytest.mark.parametrize("dark", [False, True])
def test_242_each_fate_has_its_colours(browser, html, dark):
    browser.show(html, dark=dark, height=20_000)  # so high that all steps are drawn
    found = browser.run(
        COLOUR
        + """
        Object.fromEntries([...document.querySelectorAll(".node")].map(node => {
          const box = getComputedStyle(node.querySelector(".box")), text = getComputedStyle(node.querySelector("text"));
          const fate = [...node.classList].find(name => name.startsWith("f-")).slice(2);
          return [fate, [box.fill, box.stroke, box.strokeDasharray, text.fill, text.textDecorationLine]];
        }))"""
    )
    names = {name for pair in FATES.values() for name in pair} | {"ink"}
    colours = {name: browser.run(f"{COLOUR} colour({name!r})") for name in names}
    assert found.keys() == FATES.keys()
    for fate, (fill, stroke) in FATES.items():
        assert found[fate][:2] == [colours[fill], colours[stroke]], fate
    assert len({tuple(found[fate]) for fate in FATES if fate != "end"}) == len(FATES) - 1, "told apart by their looks"
    assert found["below"] == found["end"], "neither was judged"
    for fate in ("below", "end", "dropped"):
        assert (found[fate][2] != "none", found[fate][3]) == (True, colours["soft"]), fate
    assert [fate for fate in FATES if found[fate][4] == "line-through"] == ["dropped"]


def test_242_the_path_and_the_legend_have_the_colours_of_the_nodes(browser, html):
    browser.show(html)
    edges = browser.run('[...new Set([...document.querySelectorAll(".edge")].map(e => getComputedStyle(e).stroke))]')
    known = [browser.run(f"{COLOUR} colour({name!r})") for name in ("stood", "line")]
    assert sorted(edges) == sorted(known)
    for name in ("stood", "refused", "bonus"):
        legend = browser.run(f'getComputedStyle(document.querySelector(".k-{name}"), "::before").backgroundColor')
        assert legend == browser.run(f"{COLOUR} colour({name!r})"), name


@pytest.mark.parametrize("width", [360, 390, 768, 1200])
def test_242_nothing_is_cut_off(browser, html, width):
    browser.show(html, width=width)
    assert browser.run("innerWidth") == width
    assert browser.run(TOO_WIDE) == []
    cut = browser.run(
        """[...document.querySelectorAll(".head")].flatMap(head => {
          const frame = head.getBoundingClientRect();
          return [...head.children].filter(part => {
            const box = part.getBoundingClientRect();
            const beyond = box.right > frame.right + .5 || box.bottom > frame.bottom + .5;
            return beyond || part.scrollWidth > part.clientWidth + 1;
          }).map(part => part.textContent);
        })"""
    )
    assert cut == []
    said = browser.run('[...document.querySelectorAll(".head")].map(head => head.textContent)')
    assert "1250.3 ms · read 512 of the prompt" in said[0]
    for last in ("scrollTo(0, document.body.scrollHeight)", "0"):  # trees stay in their cards
        browser.run(last)
        tall = (
            '[...document.querySelectorAll(".step")].filter(step => step.scrollHeight > step.clientHeight + 1).length'
        )
        assert browser.run(tall) == 0


def test_242_the_head_of_the_page_and_its_steps_count_alike(browser, html):
    browser.show(html, height=20_000)
    facts = browser.run('[...document.querySelectorAll("dl.facts dd")].map(fact => fact.textContent)')
    heads = browser.run(
        '[...document.querySelectorAll(".head")].map(head => [...head.children].map(part => part.textContent))'
    )
    assert len(heads) == len(STEPS) == int(facts[1])
    assert sum(int(head[3]) for head in heads) == int(facts[0])
    stood, guessed = map(int, re.match(r"(\d+) of (\d+) stand", facts[3]).groups())
    told = [re.match(r"(\d+) of (\d+) stood", head[2]) for head in heads]
    assert sum(int(match[1]) for match in told if match) == stood
    assert sum(int(match[2]) for match in told if match) == guessed
    assert [head[1] for head in heads[:2]] == ["token 1", "tokens 2–3"]
    assert heads[-1][1] == f"token {facts[0]}", "the answer's own places, without its prompt"
    assert [head[2] for head in heads[:2]] == ["nothing guessed", "1 of 3 stood, 1 dropped"]
    assert browser.run('document.getElementById("where").textContent') == f"step 1 of {len(STEPS)}, token 1"


@pytest.mark.parametrize("dark", [False, True])
def test_242_every_text_can_be_read(browser, html, dark):
    browser.show(html, dark=dark, height=2000)
    assert browser.run(CONTRAST) == []
