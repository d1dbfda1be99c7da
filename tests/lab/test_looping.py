"""Answers that repeat themselves: what they are, and what is said of a gain that comes from them."""

import pytest

from forerun.lab.domains import view
from forerun.lab.looping import counted, loops, repeats, share, told, with_gains
from forerun.lab.paired import Samples, Unit, arm_figures
from forerun.lab.restored import restored
from forerun.lab.sample import Sample
from forerun.lab.views import Note, Table, spoken

FRESH, LOOP = list(range(80)), [1, 2, 3, 4] * 20


def sample(seconds, *answers, first_s=0.1):
    """An arm's answer(s) that took so long."""
    count = sum(map(len, answers))
    return Sample(
        answers=len(answers), tokens=count - len(answers), decode_s=seconds, first_s=first_s, cpu_s=seconds,
        steps=count, rows=count, phases={"score": seconds}, emitted=count, passes=count, drafted=0, accepted=0,
        tried_at=(), stood_at=(), digest="d", repeats=tuple(map(repeats, answers)),
    )  # fmt: skip


def prompt(i, plain, drafted, answer, turn=0):
    arms = {"plain": plain, "plain again": plain, "ngram": drafted}
    return Unit("code", str(i), turn, 0, {name: sample(seconds, answer) for name, seconds in arms.items()})


def half_loops():
    """Six prompts whose answers are fresh, 5 % faster with drafts, and six that loop, six times as fast."""
    return Samples([prompt(i, 1.05, 1.0, FRESH) for i in range(6)] + [prompt(6 + i, 6.0, 1.0, LOOP) for i in range(6)])


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ([], (0, 0)),
        ([7] * 5, (0, 0)),
        ([7] * 8, (2, 3)),
        (FRESH, (0, 75)),
        (LOOP, (71, 75)),
        ([1, 2, 3, 4, 5, 6, 9, 1, 2, 3, 4, 5, 6], (1, 8)),
    ],
)
def test_211_how_far_an_answer_repeats_itself(answer, found):
    assert repeats(answer) == found


def test_211_an_answer_loops_from_a_fifth_on():
    assert loops([(20, 100)])
    assert not loops([(19, 100)])
    assert not loops([])
    assert not loops([(0, 0)])
    assert share([(40, 50), (0, 50)]) == 0.4
    assert counted([(71, 75), (0, 75)]) == {"answers": 1, "of": 2, "repeated": 0.4733}
    assert told(counted([(71, 75), (0, 75)])) == "1 of 2, 47%"


def test_211_a_gain_is_told_with_looping_answers_and_without():
    found = arm_figures(half_loops(), "ngram")
    assert found["speedup_total"]["value"] == pytest.approx(6 * 7.05 / 12, rel=0.01)
    assert found["looping"] | {"without": None} == {"answers": 6, "of": 12, "repeated": 0.4733, "without": None}
    without = found["looping"]["without"]
    assert without["prompts"] == 6
    assert [without[name]["value"] for name in ("speedup", "speedup_total")] == [pytest.approx(1.05)] * 2
    assert without["speedup_answer"]["value"] == pytest.approx(1.15 / 1.1)


def test_211_where_all_answers_loop_nothing_is_left_and_where_none_does_nothing_is_said():
    loop = arm_figures(Samples([prompt(i, 6.0, 1.0, LOOP) for i in range(6)]), "ngram")["looping"]
    assert (loop["answers"], loop["without"]["prompts"], loop["without"]["speedup"]) == (6, 0, None)
    fresh = arm_figures(Samples([prompt(i, 1.0, 1.0, FRESH) for i in range(6)]), "ngram")["looping"]
    assert fresh == {"answers": 0, "of": 6, "repeated": 0.0, "without": None}


def test_211_a_conversation_with_one_looping_turn_is_left_out_whole():
    samples = Samples([prompt(0, 1.0, 1.0, FRESH), prompt(0, 6.0, 1.0, LOOP, turn=1), prompt(1, 1.0, 1.0, FRESH)])
    assert [unit.prompt for unit in samples.without_loops("plain", "ngram").units] == ["1"]


def test_211_either_arm_that_loops_counts():
    """With draws the arms' texts differ: a loop of plain decoding alone would make the drafter look slow."""
    unit = Unit("code", "0", 0, 0, {"plain": sample(1.0, LOOP), "ngram": sample(1.0, FRESH)})
    assert not Samples([unit]).without_loops("plain", "ngram").units
    assert arm_figures(Samples([unit]), "ngram")["looping"]["without"]["prompts"] == 0


def test_211_samples_of_older_files_say_nothing_of_loops():
    value = sample(1.0, LOOP).to_json()
    assert restored(Sample, value).loops
    del value["repeats"]
    old = restored(Sample, value)
    assert not old.loops
    assert arm_figures(Samples([Unit("code", "0", 0, 0, {"plain": old, "ngram": old})]), "ngram")["looping"] is None


def test_211_tables_of_gains_have_it():
    samples = half_loops()
    arms = {name: arm_figures(samples, name) for name in ("plain", "ngram")}
    work = {"prompts": 12, "noise": None, "arms": arms}
    said = spoken(view({"workloads": {"code": work}, "noise": None, "memory_mb": {}, "left_out": []}))
    head, plain, ngram = said.splitlines()[3:6]
    assert head.split("  ")[-2:] == ["looping", "without"] or head.endswith("without")
    assert ngram.rstrip().endswith("6 of 12, 47%  1.05 (1.05..1.05)"), (plain, ngram)
    assert "stood before in the same answer" in said


def test_243_whole_answers_stand_beside_the_gain_a_token():
    table = Table("t", ("arm", "speed-up"), (("a", "1.50"), ("b", "-")))
    figures = {"speedup_answer": {"value": 1.2, "low": 1.1, "high": 1.3, "of": 9}}
    (found,) = with_gains(table, [figures, None])
    assert found.heads == ("arm", "speed-up", "whole answer")
    assert [row[-1] for row in found.rows] == ["1.20 (1.10..1.30)", "-"]
    (again,) = with_gains(found, [figures, None])
    assert again == found, "not twice"
    assert not any(isinstance(item, Note) for item in with_gains(table, [figures, figures]))
