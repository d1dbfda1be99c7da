"""Comparing both ways: neither arm may help the other."""

import pytest

import forerun
from forerun.cli.compare import Outcome, compare, table
from forerun.core.seq import SeqStats


@pytest.mark.parametrize("drafter", ["suffix", "first_of:of=prediction+suffix"])
def test_a_drafter_that_remembers_does_not_know_the_other_arm_s_answer(models, drafter):
    params = {"max_tokens": 24, "ignore_eos": True}
    with forerun.load(str(models["folder"]), drafter, reuse=False) as engine:
        outcome = compare(engine, [engine.words.encode("The sea was", bos=False)] * 2, params)
    with forerun.load(str(models["folder"]), drafter) as fresh:
        alone = fresh.generate("The sea was", **params).stats
        again = fresh.generate("The sea was", **params).stats
    assert [result.stats.accepted for result in outcome.drafted] == [alone.accepted] * 2
    assert again.accepted > alone.accepted  # it does remember where nobody compares


class Told:
    """A result of so many tokens: a second of reading, then so long for the rest."""

    def __init__(self, ids, decode_s):
        self.token_ids, self.tokens, self.choices = ids, ids, [self]
        times = {"added_s": 1.0, "started_s": 1.0, "first_s": 2.0, "ended_s": 2.0 + decode_s}
        self.stats = SeqStats(emitted=len(ids), first_tokens=1, target_passes=len(ids), **times)


def test_211_243_the_demo_tells_whole_answers_and_those_that_loop():
    fresh, loop = list(range(40)), [1, 2] * 20
    outcome = Outcome([Told(fresh, 1.0), Told(loop, 4.0)], [Told(fresh, 1.0), Told(loop, 1.0)])
    found = outcome.summary()
    assert found["speedup"] == pytest.approx(2.5)
    assert found["speedup_answer"] == pytest.approx((2 + 5) / (2 + 2))
    assert (found["looping"]["answers"], found["speedup_without_looping"]) == (1, pytest.approx(1.0))
    lines = {line[:24].strip(): line[24:].strip() for line in table(outcome).splitlines()}
    assert (lines["speed-up (median)"], lines["whole answers"]) == ("2.50x", "1.75x")
    assert (lines["answers that loop"], lines["speed-up without them"]) == ("1 of 2, 47%", "1.00x")
    assert "answers that loop" not in table(Outcome([Told(fresh, 1.0)], [Told(fresh, 1.0)]))
    assert "none left" in table(Outcome([Told(loop, 1.0)], [Told(loop, 1.0)]))
