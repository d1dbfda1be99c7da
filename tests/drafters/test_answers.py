from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.drafters.answers import BORDER, Answers


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=30), st.integers(2, 25))
def test_the_newest_whole_answers_within_the_limit(added, limit):
    answers = Answers(limit, 2)
    for answer in added:
        answers.add(answer)
        assert len(answers) <= limit
        assert len(answers.index.tokens) <= 2 * limit + 1
    kept = answers.texts()
    expected = [answer[-(limit - 1) :] for answer in added if answer]
    assert kept == expected[len(expected) - len(kept) :]
    assert not expected or kept, "the newest is always held"
    for tail in ([0, 1], [2, 2]):
        found = sum(text[at : at + 2] == tail for text in kept for at in range(len(text) - 1))
        assert len(list(answers.index.places(tail))) == found


def test_no_match_crosses_a_border():
    answers = Answers(100, 2)
    answers.add([1, 2])
    answers.add([3, 4])
    assert answers.index.tokens == [1, 2, BORDER, 3, 4, BORDER]
    assert [answers.index.tokens[place] for place in answers.index.places([1, 2])] == [BORDER]
    assert list(answers.index.places([2, 3])) == []


def test_none_are_kept_at_limit_zero():
    answers = Answers(0, 2)
    answers.add([1, 2, 3])
    assert len(answers) == 0
