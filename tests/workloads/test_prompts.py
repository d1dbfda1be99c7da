"""Prompts and their collections: what is refused, what the digest sees, what is taken."""

import pytest

from forerun.core.errors import SpecError
from forerun.workloads.prompts import Prompt, Workload


def numbered(count, name="w"):
    return Workload(name, tuple(Prompt(f"p{i}", (f"text {i}",), "odd" if i % 2 else "") for i in range(count)), "here")


def test_the_text_of_a_prompt_is_its_first_turn():
    assert Prompt("a", ("one", "two")).text == "one"


@pytest.mark.parametrize(
    ("id", "turns", "message"),
    [
        ("", ("x",), "needs an id"),
        ("a", (), "'a' has no turns"),
        ("a", ("x", " \n"), "turn 2 of prompt 'a' is empty"),
        ("a", ("half \ud83d",), "half a surrogate pair"),
    ],
)
def test_a_prompt_that_asks_nothing_is_refused(id, turns, message):
    with pytest.raises(SpecError, match=message):
        Prompt(id, turns)


def test_a_workload_without_prompts_or_with_one_id_twice_is_refused():
    with pytest.raises(SpecError, match="'w' has no prompts"):
        Workload("w", (), "here")
    with pytest.raises(SpecError, match="the id 'a' twice"):
        Workload("w", (Prompt("a", ("x",)), Prompt("b", ("y",)), Prompt("a", ("z",))), "here")


@pytest.mark.parametrize(
    "other",
    [
        (Prompt("a", ("x",)), Prompt("c", ("y", "z"))),
        (Prompt("a", ("x",)), Prompt("b", ("y z",))),
        (Prompt("a", ("x",)), Prompt("b", ("y",)), Prompt("z", ("q",))),
        (Prompt("b", ("y", "z")), Prompt("a", ("x",))),
        (Prompt("a", ("x ",)), Prompt("b", ("y", "z"))),
    ],
)
def test_the_digest_changes_with_ids_turns_and_order(other):
    prompts = (Prompt("a", ("x",)), Prompt("b", ("y", "z")))
    assert Workload("w", prompts, "here").digest != Workload("w", other, "here").digest


def test_the_digest_is_that_of_what_is_asked_and_nothing_else():
    bare = Workload("w", (Prompt("a", ("ж",)),), "here")
    assert bare.digest == Workload("v", (Prompt("a", ("ж",), "c", ("r",)),), "there").digest
    assert bare.digest == "14b24e57d8683f0f", "results files hold digests: a change makes them strangers"


@pytest.mark.parametrize(("count", "ids"), [(1, "0"), (3, "0 3 6"), (4, "0 2 5 7"), (9, "0 1 2 3 4 5 6 7 8")])
def test_what_is_taken_is_spread_evenly(count, ids):
    assert [prompt.id for prompt in numbered(10).take(count).prompts] == [f"p{i}" for i in ids.split()]


def test_taking_more_than_there_is_gives_all_and_less_than_one_is_refused():
    whole = numbered(3)
    assert whole.take(3) is whole.take(50) is whole
    with pytest.raises(SpecError, match="at least one prompt of 'w', got 0"):
        whole.take(0)


def test_a_category_is_chosen_by_name():
    chosen = numbered(5).only("odd")
    assert [prompt.id for prompt in chosen.prompts] == ["p1", "p3"]
    assert chosen.name == "w#odd"
    for wrong in ("old", ""):
        with pytest.raises(SpecError, match=f"unknown category of w '{wrong}'.*allowed: odd"):
            numbered(5).only(wrong)
