"""Advice: costs between measured rows, who is ranked before whom, what is measured live, and what a run says of it."""

from dataclasses import replace

import pytest

from forerun.core.errors import SpecError
from forerun.lab import paired
from forerun.lab.advice import advise
from forerun.lab.advice.advise import Advisor, Costs, answers, judged
from forerun.lab.advice.grid import candidates
from forerun.lab.advice.show import view
from forerun.lab.paired import Asked, Samples, Unit
from forerun.lab.run import Run
from forerun.lab.stats import FEWEST, Interval
from forerun.lab.views import Note, spoken
from forerun.workloads.workload import Prompt, Workload

ASKED = Asked({"max_tokens": 24, "ignore_eos": True})
TEXTS = [f"{a} two three {a} two three {a} two" for a in ("one", "a", "the", "red", "sea", "big", "far", "old")]


def toys(*more):
    return Workload("toys", tuple(Prompt(f"p{i}", (text,)) for i, text in enumerate([*TEXTS, *more])), "tests")


def advisor(bench, asked=ASKED, seconds=3.0, work=None, cls=Advisor):
    return cls(bench, Run("advise", None, {}), work or toys(), asked, seconds)


def test_costs_lie_on_straight_lines_between_what_was_measured():
    costs = Costs({1: 1.0, 2: 1.2, 4: 2.0, 8: 4.0}, 0.1)
    assert [costs.forward(rows) for rows in (1, 2, 3, 4, 6)] == pytest.approx([1.0, 1.2, 1.6, 2.0, 3.0])
    assert costs.forward(12) == pytest.approx(6.0)
    assert Costs({1: 1.0}, 0).forward(5) == 1.0


@pytest.fixture(scope="module")
def advice(bench):
    work = toys("word " * 5000)
    return advisor(bench, work=work).advise(["ngram", "skip:layers=1"])


def test_advice_ends_with_a_recommendation(advice):
    figures, samples = advice
    assert figures["noise"]["of"] >= FEWEST
    tried = [entry["spec"] for entry in figures["candidates"]]
    assert sorted([*tried, *figures["untried"]]) == sorted(c.spec for c in candidates(["ngram", "skip:layers=1"]))
    said = figures["recommend"]
    assert bool(said["speculate"]) == (said["spec"] != "none")
    assert said["command"].startswith("forerun generate -m ")
    assert "--runtime torch --threads 1 --max-tokens 24 --ignore-eos" in said["command"]
    spent = figures["seconds"]
    assert set(spent) == {"plain", "curve", "replay", "live", "total"}
    assert spent["total"] >= sum(spent.values()) - spent["total"] - 0.05
    assert figures["budget_s"] == 3.0
    assert all(arm["same_text"] == arm["answers"] for arm in figures["arms"].values())
    assert figures["left_out"] == ["toys/p8"]
    assert figures["live"]["prompts"] == len({unit.prompt for unit in samples.units}) >= FEWEST


def test_advice_says_what_it_asked(bench, advice):
    found = {"toys": advice[0]}
    said = answers(bench, ["ngram"], [toys("word " * 5000)], ASKED, found).data
    live = advice[0]["live"]
    assert f"{live['prompts']} of them measured live in {live['rounds']} rounds" in said
    assert "9 prompts" in said
    assert "left out as too long: toys/p8" in said
    assert "first turns" in said


def test_advice_can_be_shown(advice):
    shown = view({"workloads": {"toys": advice[0]}})
    notes = [each.text for each in shown if isinstance(each, Note)]
    assert any(text.startswith("toys: ") and "speculate" in text for text in notes)
    assert advice[0]["recommend"]["command"] in notes  # a line of its own, to be copied
    assert not any("\n" in text for text in notes)
    assert "not tried for want of time or hope" not in spoken(shown) or advice[0]["untried"]


def test_an_overrun_and_what_was_not_tried_are_said(advice):
    figures = advice[0]
    late = {**figures, "seconds": {**figures["seconds"], "total": 9.4}, "untried": ["skip:depth=6"]}
    said = spoken(view({"workloads": {"toys": late}}))
    assert "toys: took 9 s where 3 s were asked for" in said
    assert "toys: not tried for want of time or hope: skip:depth=6" in said
    early = {**figures, "seconds": {**figures["seconds"], "total": 2.9}}
    assert "were asked for" not in spoken(view({"workloads": {"toys": early}}))


# ranking, by a clock that only predictions move


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Told(Advisor):
    """Predicts in `few_s` or `all_s` seconds of the clock: what is said of few answers is 1 more than of all."""

    few_s = all_s = 0.0
    speeds = None  # by spec, or rising with the place in the grid

    def _predict(self, candidate, known, costs):
        few = len(known) < 6
        advise.perf_counter.now += self.few_s if few else self.all_s
        speed = self.speeds(candidate) if self.speeds else 2.0 + candidates(["ngram"]).index(candidate) / 100 + few
        return {"spec": candidate.spec, "speedup": speed, "answers": len(known)}


def ranked(bench, monkeypatch, few, all, drafters=("ngram",), speeds=None):
    monkeypatch.setattr(advise, "perf_counter", Clock())
    told = advisor(bench, seconds=10.0, cls=Told)  # of which 3 are for replay
    told.few_s, told.all_s, told.speeds = few, all, speeds
    return told._rank(candidates(drafters), [None] * 6, None)


def test_with_time_enough_all_near_the_best_are_led_along_every_answer(bench, monkeypatch):
    found, untried = ranked(bench, monkeypatch, few=0.01, all=0.01)
    assert [entry["answers"] for entry in found] == [6] * 8
    assert [entry["speedup"] for entry in found] == pytest.approx([2.07 - i / 100 for i in range(8)])
    assert untried == []


def test_what_there_was_no_time_for_stands_behind_what_was_led_along_every_answer(bench, monkeypatch):
    """A few answers promise more than all do: that must not put the late ones first."""
    found, untried = ranked(bench, monkeypatch, few=0.0, all=2.0)
    assert [entry["answers"] for entry in found] == [6] * 3 + [3] * 5
    assert found[3]["speedup"] > found[0]["speedup"]
    for part in (found[:3], found[3:]):
        speeds = [entry["speedup"] for entry in part]
        assert speeds == sorted(speeds, reverse=True)
    assert untried == []


def test_lookups_go_first_and_models_that_fall_behind_are_given_up(bench, monkeypatch):
    """The deepest lookup is the best here: slow shapes of a model must not take its time."""

    def speeds(candidate):
        return 2.0 + candidate.plan.depth / 100 if candidate.spec.startswith("ngram") else 0.5

    drafters = ("skip:layers=1", "ngram")
    found, untried = ranked(bench, monkeypatch, few=0.1, all=0.1, drafters=drafters, speeds=speeds)
    assert found[0]["spec"] == "ngram"
    assert sum(entry["spec"].startswith("skip") for entry in found) == advise.HOPELESS
    assert untried
    assert all(spec.startswith("skip") for spec in untried)
    tried = [entry["spec"] for entry in found]
    assert sorted([*tried, *untried]) == sorted(c.spec for c in candidates(drafters))


def test_a_model_that_keeps_up_is_tried_to_its_depth_while_there_is_time(bench, monkeypatch):
    found, untried = ranked(bench, monkeypatch, few=0.01, all=0.01, drafters=("skip:layers=1",), speeds=lambda c: 2.0)
    assert len(found) == len(candidates(["skip:layers=1"]))
    assert untried == []
    found, untried = ranked(
        bench, monkeypatch, few=50.0, all=0.0, drafters=("ngram", "skip:layers=1"), speeds=lambda c: 2.0
    )
    assert not any(entry["spec"].startswith("skip") for entry in found)
    assert len(untried) == len(candidates(["skip:layers=1"]))


def test_the_best_goes_live_with_the_best_of_another_drafter_if_it_is_near():
    def entries(**speeds):
        return [{"spec": spec.replace("_", ":depth="), "speedup": speed} for spec, speed in speeds.items()]

    assert advise.finals(entries(ngram=1.5, ngram_8=1.49, suffix=1.4, suffix_4=1.39)) == ["ngram", "suffix"]
    assert advise.finals(entries(ngram=1.5, ngram_8=1.49, suffix=1.2)) == ["ngram"]
    assert advise.finals(entries(ngram=0.99, suffix=0.9)) == []
    assert advise.finals([]) == []


# measuring live


@pytest.fixture
def heard(monkeypatch):
    """Every unit that is measured, as (prompt, number, round), and every warm-up."""
    units, warmed = [], []
    unit, warm_up = paired.Session.unit, paired.Session._warm_up

    def noted(self, workload, index, prompt, round):
        units.append((prompt.id, index, round))
        return unit(self, workload, index, prompt, round)

    def noted_warm_up(self, ids, params):
        warmed.append(self._warm)
        return warm_up(self, ids, params)

    monkeypatch.setattr(paired.Session, "unit", noted)
    monkeypatch.setattr(paired.Session, "_warm_up", noted_warm_up)
    return units, warmed


def test_live_is_one_session_with_real_numbers_and_rounds(bench, heard):
    units, warmed = heard
    looked = advisor(bench, replace(ASKED, params={**ASKED.params, "temperature": 0.9, "seed": 40}), seconds=1e6)
    looked._live(["ngram"])
    assert sorted(units) == sorted((f"p{i}", i, round) for i in range(8) for round in range(advise.ROUNDS))
    assert [round for _, _, round in units] == sorted(round for _, _, round in units)
    assert warmed.count(False) == 1


def test_seeds_move_on_by_the_prompt_s_number_and_orders_by_the_round(bench, monkeypatch):
    asked = []

    def answer(self, prompts, params, listener=None):
        asked.append((self.name, params["seed"]))
        return measured(24)

    monkeypatch.setattr("forerun.lab.arms.EngineArm.answer", answer)
    params = {"max_tokens": 24, "temperature": 0.9, "seed": 40}
    looked = advisor(bench, Asked(params), seconds=1e6)
    samples = looked._live(["ngram", "suffix"])
    asked = asked[4:]  # the warm-up of four arms
    groups = [asked[i : i + 4] for i in range(0, len(asked), 4)]
    assert len(groups) == len(samples.units) == 8 * advise.ROUNDS
    for unit, group in zip(samples.units, groups, strict=True):
        assert {seed for _, seed in group} == {40 + int(unit.prompt[1:])}
    orders = {}
    for unit, group in zip(samples.units, groups, strict=True):
        orders.setdefault(unit.prompt, set()).add(tuple(name for name, _ in group))
    assert any(len(found) > 1 for found in orders.values())


def test_live_ends_with_the_time_once_enough_prompts_are_measured(bench):
    assert len(advisor(bench, seconds=0.0)._live(["ngram"]).units) == FEWEST
    few = Workload("toys", toys().prompts[:3], "tests")
    assert len(advisor(bench, seconds=0.0, work=few)._live(["ngram"]).units) == 3


def measured(tokens, decode_s=0.5):
    from forerun.lab.sample import Sample

    return Sample(
        answers=1, tokens=tokens, decode_s=decode_s, first_s=0.1, cpu_s=0.1, steps=tokens, rows=tokens, phases={},
        emitted=tokens + 1, passes=tokens + 1, drafted=0, accepted=0, tried_at=(), stood_at=(), digest="d",
        texts=("text",), ids=((1,),),
    )  # fmt: skip


def test_the_verdict_is_of_the_total(bench):
    """Seven prompts are twice as fast, the long eighth is slower by more than they gain."""
    units = [
        Unit("w", f"p{i}", 0, 0, {"plain": measured(10, plain), "ngram": measured(10, ours)})
        for i, (plain, ours) in enumerate([(0.2, 0.1)] * 7 + [(9.0, 12.0)])
    ]
    floor = Interval(1.0, 0.99, 1.01, 8)
    figures = judged(Samples(units), "ngram", floor)
    assert figures["verdict"] == "faster"
    assert figures["speedup_total"]["value"] < 1.0
    assert figures["verdict_total"] != "faster"
    assert judged(Samples(units), "ngram", None)["verdict_total"] is None


def test_answers_that_are_too_short_to_time_are_no_crash(bench):
    """One token is the first one, and nothing comes after it."""
    looked = advisor(bench, Asked({"max_tokens": 2, "ignore_eos": True}))
    looked._live = lambda specs: Samples(
        [Unit("toys", "p0", 0, 0, {name: measured(0) for name in ("plain", "plain again", *specs)})]
    )
    figures, _ = looked.advise(["ngram"])
    assert figures["noise"] is None
    assert not figures["recommend"]["speculate"]
    assert "do not speculate" in spoken(view({"workloads": {"toys": figures}}))


def test_prompts_that_cannot_be_answered_are_refused(bench):
    work = Workload("long", (Prompt("p", ("word " * 5000,)),), "tests")
    with pytest.raises(SpecError, match="fits the context"):
        advisor(bench, Asked({"max_tokens": 8}), 1.0, work).advise(["ngram"])
