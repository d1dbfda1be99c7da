"""Advice: the grid, the costs between measured rows, and what is recommended when."""

import pytest

from forerun.core.errors import SpecError
from forerun.core.plan import Plan
from forerun.lab.advice import advise, elsewhere
from forerun.lab.advice.advise import Advisor, Costs, candidates, recommend, spelled
from forerun.lab.paired import Asked
from forerun.lab.run import Run
from forerun.lab.views import Note, spoken


def test_the_grid_has_every_depth_and_trees_where_they_grow():
    specs = [c.spec for c in candidates(["ngram", "suffix"])]
    assert {"ngram", "ngram:depth=1", "ngram:depth=8", "suffix:depth=4,width=3,nodes=15"} <= set(specs)
    assert len(specs) == len(set(specs))
    assert not any("width" in spec for spec in specs if spec.startswith("ngram"))


def test_a_shape_that_is_given_is_taken_as_it_is():
    (only,) = candidates(["suffix:depth=5,factor=2"])
    assert only.plan == Plan(5)
    assert only.spec == "suffix:factor=2,depth=5"


def test_a_spec_says_what_differs_from_the_default():
    assert spelled("ngram", {"min": "3"}, Plan(15), Plan(15)) == "ngram:min=3"
    assert spelled("skip", {}, Plan(2, width=2, nodes=6, confidence=0.3), Plan(3)) == (
        "skip:depth=2,width=2,nodes=6,confidence=0.3"
    )


def test_costs_lie_on_straight_lines_between_what_was_measured():
    costs = Costs({1: 1.0, 2: 1.2, 4: 2.0, 8: 4.0}, 0.1)
    assert [costs.forward(rows) for rows in (1, 2, 3, 4, 6)] == pytest.approx([1.0, 1.2, 1.6, 2.0, 3.0])
    assert costs.forward(12) == pytest.approx(6.0)
    assert Costs({1: 1.0}, 0).forward(5) == 1.0


@pytest.fixture(scope="module")
def advice(bench):
    from forerun.workloads.workload import Prompt, Workload

    texts = [f"{a} two three {a} two three {a} two" for a in ("one", "a", "the", "red", "sea", "big")]
    work = Workload("toys", tuple(Prompt(f"p{i}", (text,)) for i, text in enumerate(texts)), "tests")
    asked = Asked({"max_tokens": 24, "ignore_eos": True})
    figures, samples = Advisor(bench, Run("advise", None, {}), work, asked, 3.0).advise(["ngram", "skip:layers=1"])
    return figures, samples


def test_advice_ends_with_a_recommendation(advice):
    figures, samples = advice
    assert figures["noise"]["of"] >= advise.FEWEST
    assert len(figures["candidates"]) == len(candidates(["ngram", "skip:layers=1"]))
    best = [entry["speedup"] for entry in figures["candidates"] if entry["answers"] == figures["prompts"]]
    assert best == sorted(best, reverse=True)
    said = figures["recommend"]
    assert said["speculate"] == (said["spec"] != "none")
    assert said["command"].startswith("forerun generate -m ")
    assert set(figures["seconds"]) == {"plain", "curve", "replay", "live"}
    assert all(arm["same_text"] == arm["answers"] for arm in figures["arms"].values())
    assert samples.units


def test_advice_can_be_shown(advice):
    shown = spoken(advise.view({"workloads": {"toys": advice[0]}}))
    assert "toys: " in shown
    assert "speculate" in shown
    assert any(isinstance(view, Note) for view in advise.view({"workloads": {"toys": advice[0]}}))


def arm(total, verdict):
    value = {"value": total, "low": total - 0.1, "high": total + 0.1, "of": 9}
    return {"speedup": value, "speedup_total": value, "verdict": verdict}


def test_only_what_is_faster_beyond_the_noise_is_recommended(bench):
    arms = {"plain": arm(1.0, "no difference"), "ngram": arm(1.5, "faster"), "suffix": arm(1.4, "faster")}
    assert recommend(arms, bench)["spec"] == "ngram"
    said = recommend({**arms, "ngram": arm(1.5, "no difference"), "suffix": arm(0.9, "slower")}, bench)
    assert (said["speculate"], said["spec"], said["best_not_taken"]) == (False, "none", "ngram")
    assert recommend({"plain": arms["plain"]}, bench)["why"].startswith("no candidate")


@pytest.mark.parametrize(
    ("spec", "vllm", "llama"),
    [
        ("none", "no --spec", "no --spec"),
        ("ngram:depth=8,min=3", '"num_speculative_tokens": 8', "ngram-simple --spec-ngram-size-n 3 --draft-max 8"),
        ("suffix:depth=6", '"method": "suffix"', "--draft-max 6"),
        ("model:path=small.gguf,depth=4", '"model": "small.gguf"', "-md small.gguf --draft-max 4"),
        ("skip:layers=3", "no drafter like 'skip'", "no drafter like 'skip'"),
    ],
)
def test_other_engines_options(spec, vllm, llama):
    assert vllm in elsewhere.vllm(spec)
    assert llama in elsewhere.llama_cpp(spec)


def test_prompts_that_cannot_be_answered_are_refused(bench):
    from forerun.workloads.workload import Prompt, Workload

    work = Workload("long", (Prompt("p", ("word " * 5000,)),), "tests")
    with pytest.raises(SpecError, match="fits the context"):
        Advisor(bench, Run("advise", None, {}), work, Asked({"max_tokens": 8}), 1.0).advise(["ngram"])
