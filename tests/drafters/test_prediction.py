from __future__ import annotations

from dataclasses import replace

import pytest

from forerun.core.errors import SpecError
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.drafters.prediction import PredictionDrafter, PredictionOptions
from forerun.testing.conformance import check_drafter
from forerun.testing.toy import scripted_law

EXPECTED = tuple(range(100, 140))
GREEDY = SamplingParams(max_tokens=40, prediction=EXPECTED)


def edited(decode, script, options=None, prediction=EXPECTED, depth=8):
    ask = replace(GREEDY, max_tokens=len(script), prediction=prediction)
    drafter = PredictionDrafter(options)
    run = decode(scripted_law(script, 1, 256), drafter, [[1]], Plan(depth), ask, vocab_size=256)
    assert run.tokens == script
    assert not drafter._pointers
    return run


def test_conformance():
    tally = check_drafter(PredictionDrafter)
    assert 0 < tally.accepted < tally.drafted


@pytest.mark.parametrize("least", [1, 2])
def test_case_97_diverges_and_comes_back(decode, least):
    script = [*range(100, 110), 7, 8, *range(112, 140)]
    run = edited(decode, script, PredictionOptions(min=least))
    assert sum(run.accepted) >= 30
    assert len(run.traces) <= 12


def test_case_97_a_prediction_that_never_matches(decode):
    run = edited(decode, [5 + i % 30 for i in range(40)])
    assert len(run.traces) <= 40
    assert sum(run.drafted) == 8, "only the beginning is trusted unseen"


def test_a_right_prediction_is_read_to_its_end_and_not_beyond(decode):
    run = edited(decode, [*EXPECTED, 5, 6])
    assert run.drafted == [8, 8, 8, 8, 4, 0]  # 4 x 9 tokens, then the last four with 5 for free, then 6


def test_what_was_left_out_is_jumped_over_and_what_was_put_in_is_waited_for(decode):
    left_out = edited(decode, [*EXPECTED[:8], *EXPECTED[20:]])
    assert len(left_out.traces) <= 6
    put_in = edited(decode, [*EXPECTED[:8], 7, 7, *EXPECTED[8:]])
    assert len(put_in.traces) <= 9


def test_the_nearest_place_after_the_old_one_is_taken(decode):
    line = [9, 9, 9]
    prediction = [*line, 10, 11, 12, 13, *line, 20, 21, 22, 23, *line, 30, 31, 32, 33]
    script = [*line, 10, 99, 12, 13, 98, *line[:1], 9, 9, 20, 21, 22, 23]
    seen = []
    drafter = PredictionDrafter()
    original = drafter.draft

    def spy(seqs, plan, noise):
        draft = original(seqs, plan, noise)
        seen.append((tuple(seqs[0].token_ids), draft.trees[0].tokens[1:]))
        return draft

    drafter.draft = spy
    ask = SamplingParams(max_tokens=len(script), prediction=tuple(prediction))
    run = decode(scripted_law(script, 1, 256), drafter, [[1]], Plan(2), ask, vocab_size=256)
    assert run.tokens == script
    after_line = [draft for text, draft in seen if text and len(text) > 8 and text[-1] == 9]
    assert all(30 not in draft for draft in after_line)


def test_no_prediction_no_draft(decode):
    run = edited(decode, [1, 2, 3], prediction=())
    assert run.drafted == [0, 0, 0]


@pytest.mark.parametrize("values", [{"min": 0}, {"min": 3, "max": 2}, {"candidates": 1.0}, {"factor": -1}])
def test_options_out_of_range(values):
    with pytest.raises(SpecError, match="prediction"):
        PredictionOptions(**values)
