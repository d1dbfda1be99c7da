from __future__ import annotations

import random
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.drafters.index import Occurrences, agreement

texts = st.lists(st.integers(0, 3), max_size=40)


def brute(tokens: list[int], text: list[int], gram: int) -> list[int]:
    """Places in `tokens` after the last gram of `text`, newest first, something standing there."""
    tail = text[-gram:]
    return [at for at in range(len(tokens) - 1, gram - 1, -1) if tokens[at - gram : at] == tail]


@settings(deadline=None)
@given(texts, st.integers(1, 3), st.lists(st.integers(1, 7), max_size=10))
def test_places_equal_a_search(tokens, gram, pieces):
    grown: list[int] = []
    index = Occurrences(grown, gram)
    for piece in [*pieces, len(tokens)]:
        grown += tokens[len(grown) : len(grown) + piece]
        index.update()
    assert list(index.places(grown)) == (brute(grown, grown, gram) if len(grown) >= gram else [])


@settings(deadline=None)
@given(texts, texts, st.integers(1, 3))
def test_another_text_can_be_looked_up(tokens, text, gram):
    found = list(Occurrences(tokens, gram).places(text))
    assert found == (brute(tokens, text, gram) if len(text) >= gram else [])


def test_agreement_counts_backwards_up_to_the_limit():
    assert agreement([1, 2, 3, 9], 3, [0, 2, 3], 8) == 2
    assert agreement([1, 2, 3, 9], 3, [1, 2, 3], 8) == 3
    assert agreement([1, 2, 3, 9], 3, [1, 2, 3], 2) == 2
    assert agreement([9], 0, [1, 2], 5) == 0


def test_matches_look_at_count_places_and_the_hint():
    tokens = [7, 1, 2, 5, *[1, 2, 6] * 4, 7, 1, 2]
    index = Occurrences(tokens)
    assert [place for place, _ in index.matches(tokens, 2, 8)] == [15, 12]
    assert index.matches(tokens, 2, 8, hint=3) == [(15, 2), (12, 2), (3, 3)]
    assert index.matches(tokens, 9, 8, hint=3)[-1] == (3, 3)
    assert len(index.matches(tokens, 9, 8, hint=3)) == 5, "a hint among the places is not counted twice"


@settings(deadline=None)
@given(texts, texts, st.integers(1, 3), st.integers(1, 6))
def test_the_longest_is_the_first_of_the_longest_matches(tokens, text, gram, more):
    index = Occurrences(tokens, gram)
    found = index.matches(text, 99, gram + more)
    assert index.longest(text, 99, gram + more) == max(found, key=lambda match: match[1], default=(-1, 0))


def test_what_lies_before_the_floor_is_forgotten():
    index = Occurrences([1, 2, 3, 1, 2, 4, 1, 2])
    index.floor = 4
    assert list(index.places([1, 2])) == [5]


def test_case_106_memory_is_linear_and_small():
    rng = random.Random(0)
    tokens = [rng.randrange(50_000) for _ in range(100_000)]
    index = Occurrences(tokens)
    newest = index._newest
    size = sys.getsizeof(newest) + sum(map(sys.getsizeof, newest)) + sum(map(sys.getsizeof, newest.values()))
    assert (size + sys.getsizeof(index._older)) / len(tokens) <= 200
