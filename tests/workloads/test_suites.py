"""The shipped suites: large and varied enough, in the languages they claim, and nobody else's sentences."""

import re
from pathlib import Path

import pytest

from forerun.core.errors import SpecError
from forerun.workloads.files import from_path
from forerun.workloads.suites import SUITES, suite

DATA = Path(__file__).parents[3] / "shared" / "data"
PUBLIC = sorted(DATA.glob("*/question.jsonl"))


def words(text):
    return re.findall(r"\w+", text.lower())


def runs(text, length=8):
    """Every run of so many words."""
    said = words(text)
    return {tuple(said[i : i + length]) for i in range(len(said) - length + 1)}


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_has_a_dozen_different_prompts_at_least(name):
    prompts = suite(name)
    assert len(prompts) >= 12
    assert all(prompt.id.startswith(f"{name}-") for prompt in prompts)
    assert len({prompt.turns for prompt in prompts}) == len(prompts)
    assert all(prompt.turns == tuple(turn.strip() for turn in prompt.turns) for prompt in prompts)


@pytest.mark.parametrize("name", SUITES)
def test_prompts_of_a_suite_differ_in_length(name):
    lengths = [len(words(prompt.text)) for prompt in suite(name)]
    assert max(lengths) > 1.25 * min(lengths)


@pytest.mark.parametrize("name", ["code", "dialogue", "writing", "russian", "french"])
def test_some_prompts_have_two_turns(name):
    assert sum(len(prompt.turns) == 2 for prompt in suite(name)) >= 3


def test_texts_to_be_shortened_are_of_150_to_400_words():
    for prompt in suite("summary"):
        ask, _, text = prompt.text.partition("\n\n")
        assert len(ask.split()) < 40, prompt.id
        assert 150 <= len(text.split()) <= 400, prompt.id


def test_every_pair_of_languages_is_there_both_ways():
    pairs = {prompt.category for prompt in suite("translation")}
    assert len(pairs) >= 8
    assert pairs == {"-".join(reversed(pair.split("-"))) for pair in pairs}


def test_russian_is_in_cyrillic_and_what_shall_be_translated_in_its_own_letters():
    for prompt in suite("russian"):
        assert not re.search(r"[a-zA-Z]", "".join(prompt.turns)), prompt.id
    for prompt in suite("translation"):
        text = prompt.text.partition("\n\n")[2]
        assert bool(re.search(r"[а-яё]", text)) == prompt.category.startswith("ru"), prompt.id
        assert bool(re.search(r"[a-z]", text)) != prompt.category.startswith("ru"), prompt.id


def test_french_is_in_its_own_letters():
    text = " ".join(turn for prompt in suite("french") for turn in prompt.turns)
    assert set("éèàê") <= set(text)
    assert not re.search(r"\b(the|and|what|why)\b", text)


def test_every_problem_has_its_answer():
    assert all(len(prompt.reference) == 1 for prompt in suite("arithmetic"))


def test_prompts_that_results_were_measured_on_stay():
    assert [prompt.id for prompt in suite("dialogue")[:12]] == [f"dialogue-{n}" for n in range(1, 13)]
    assert suite("dialogue")[0].text == "Why is the sky blue in the day and red in the evening?"
    assert [prompt.id for prompt in suite("edit")[:3]] == ["edit-rename", "edit-hints", "edit-constant"]


def test_an_unknown_suite_is_named_with_the_nearest():
    with pytest.raises(SpecError, match=r"unknown suite 'dialog'; did you mean 'dialogue'\?"):
        suite("dialog")


def test_what_is_compared_with_public_sets_is_seen():
    assert runs("One two, three four five six seven: EIGHT nine") == {
        ("one", "two", "three", "four", "five", "six", "seven", "eight"),
        ("two", "three", "four", "five", "six", "seven", "eight", "nine"),
    }


@pytest.mark.skipif(not PUBLIC, reason="no public sets beside the checkout (shared/data/*/question.jsonl)")
def test_no_eight_words_in_a_row_are_from_a_public_set():
    ours = {run: prompt.id for name in SUITES for prompt in suite(name) for turn in prompt.turns for run in runs(turn)}
    assert len(ours) > 5000
    for file in PUBLIC:
        for prompt in from_path(file).prompts:
            for said in (*prompt.turns, *prompt.reference):
                common = runs(said) & ours.keys()
                assert not common, f"{file.parent.name} {prompt.id} and {[ours[run] for run in common]}"
