"""Draws and text told apart from their phases: nothing is lost, nothing else changes."""

import pytest

from forerun.lab.costs.stopwatch import PHASES, PhasedArm, Tally, told_apart
from forerun.lab.restored import restored

SAMPLED = {"temperature": 0.9, "top_p": 0.95, "seed": 3}


@pytest.mark.parametrize("params", [{}, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("spec", ["none", "skip:layers=1,depth=3", "skip:layers=1,depth=2,width=2,law=distinct"])
def test_a_watched_answer_is_the_same_and_its_time_is_all_there(bench, spec, params):
    asked = {"max_tokens": 20, "ignore_eos": True, **params}
    arm = bench.arm(spec)
    engine = arm.engine
    before = engine.controller, engine.parts, engine.words
    bare = arm.answer([[97, 98, 99, 97]], asked)
    watched = PhasedArm("watched", arm, fine=True).answer([[97, 98, 99, 97]], asked)
    assert (engine.controller, engine.parts, engine.words) == before
    assert (watched.digest, watched.steps, watched.rows) == (bare.digest, bare.steps, bare.rows)
    assert tuple(watched.phases) == PHASES
    assert min(watched.phases.values()) >= 0
    assert sum(watched.phases.values()) == pytest.approx(watched.decode_s)
    assert watched.phases["sampling"] > 0
    assert watched.phases["detokenise"] > 0
    assert watched.phases["sampling"] + watched.phases["detokenise"] < 0.9 * watched.decode_s


def test_forwards_are_told_apart_by_rows(bench):
    sample = PhasedArm("x", bench.arm("skip:layers=1,depth=3")).answer([[97, 98]], {"max_tokens": 20})
    assert sum(steps for _, steps, _ in sample.by_rows) == sample.steps
    assert sum(rows * steps for rows, steps, _ in sample.by_rows) == sample.rows
    assert sum(seconds for _, _, seconds in sample.by_rows) == pytest.approx(sample.phases["score"])
    assert set(sample.phases) == {"draft", "score", "verify", "commit", "rest"}
    assert restored(type(sample), sample.to_json()).by_rows == sample.by_rows
    plain = PhasedArm("x", bench.plain()).answer([[97, 98]], {"max_tokens": 9, "ignore_eos": True})
    assert [row[:2] for row in plain.by_rows] == [(1, 8)]


def test_an_answer_of_one_step_has_no_time(bench):
    sample = PhasedArm("x", bench.plain(), fine=True).answer([[97, 98]], {"max_tokens": 1})
    assert (sample.steps, sample.by_rows) == (0, ())
    assert sample.phases["sampling"] == sample.phases["detokenise"] == 0


def test_only_the_outer_call_counts():
    tally = Tally()
    assert tally.time("draw", lambda: tally.time("hear", lambda: 5)) == 5
    assert tally.seconds["draw"] > 0
    assert tally.seconds["hear"] == 0
    with pytest.raises(ZeroDivisionError):
        tally.time("tell", lambda: 1 / 0)
    tally.time("tell", lambda: None)
    assert tally.seconds["tell"] > 0


def test_telling_apart_moves_time_and_makes_none():
    phases = {"draft": 1.0, "score": 5.0, "verify": 2.0, "commit": 1.5, "rest": 0.5}
    found = told_apart(phases, {"draw": 1.25, "hear": 0.5, "tell": 0.25})
    assert found == {
        "draft": 1.0,
        "score": 5.0,
        "verify": 0.75,
        "sampling": 1.25,
        "commit": 1.0,
        "detokenise": 0.75,
        "rest": 0.25,
    }
