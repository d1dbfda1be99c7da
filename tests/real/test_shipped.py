"""The heads that come with forerun, by their names alone, beside the model that they were made for."""

from __future__ import annotations

import pytest

import forerun
from forerun import heads
from forerun.core.errors import ForerunError
from forerun.weights.pull import resolve

pytestmark = pytest.mark.real
PROMPT = "Write a Python function that returns the largest number of a list."


@pytest.fixture(scope="module")
def plain():
    try:
        resolve("smollm2")
    except ForerunError as error:
        pytest.skip(f"SmolLM2 cannot be had here: {error}")
    with forerun.load("smollm2", runtime="torch") as engine:
        return engine.generate(engine.chat(PROMPT), max_tokens=40).choices[0].token_ids


def test_all_are_found_for_the_model(plain):
    assert sorted(heads.shipped_for("smollm2")) == ["eagle3", "medusa", "mtp", "p-eagle"]


@pytest.mark.parametrize("spec", ["eagle3", "p-eagle", "medusa", "mtp", "mixed:of=ngram+eagle3"])
def test_the_name_alone_finds_it_and_the_text_is_plain_decoding_s(spec, plain):
    with forerun.load("smollm2", spec, runtime="torch") as engine:
        choice = engine.generate(engine.chat(PROMPT), max_tokens=40).choices[0]
    assert choice.token_ids == plain
    assert choice.stats.emitted > 1.3 * choice.stats.target_passes
