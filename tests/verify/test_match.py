from __future__ import annotations

import random

import pytest

from forerun.core.draft import Draft, Tree
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.testing.exact import table_draft, widths
from forerun.testing.gate import SAMPLED, measure, score
from forerun.testing.tables import random_table
from forerun.verify import Auto, Greedy, Match

TARGET, DRAFTER = random_table(5, 31), random_table(5, 32)
PROMPT = (0, 2)


def write(verify, guess, params, seed, length=30):
    """The text of many steps, as the engine runs them, and how many drafted tokens stood."""
    text, accepted = list(PROMPT), 0
    while len(text) < len(PROMPT) + length:
        noise = SeededNoise([seed])
        tree = guess(noise, tuple(text))
        rows = score([tree], TARGET, [params], [text])
        verdict = verify(Draft((tree,)), rows, noise)
        text += verdict.emitted(Draft((tree,)))[0]
        accepted += verdict.accepted[0]
    return text[len(PROMPT) : len(PROMPT) + length], accepted


def plain(noise, tokens):
    return Tree.root(tokens[-1])


def drawn(law, *shape):
    return lambda noise, tokens: table_draft(noise, tokens, DRAFTER, widths(*shape), law)


def scrambled(noise, tokens):
    """Any tree at all, parents first."""
    rng = random.Random(repr(tokens))
    parents = [-1, *(rng.randrange(node) for node in range(1, 30))]
    return Tree((tokens[-1], *(rng.randrange(5) for _ in range(29))), tuple(parents))


GUESSES = [drawn("sampled", 1, 1, 1), drawn("sampled", 3, 2), drawn("distinct", 3, 2), drawn("chosen", 2, 2), scrambled]


@pytest.mark.parametrize("params", [SAMPLED, SamplingParams(temperature=0.7, top_k=3, repetition_penalty=1.5)], ids=str)
@pytest.mark.parametrize("guess", GUESSES)
def test_the_seed_gives_the_text_of_plain_decoding_whatever_is_drafted(guess, params):
    stood = 0
    texts = set()
    for seed in range(8):
        text, accepted = write(Match(), guess, params, seed)
        assert text == write(Match(), plain, params, seed)[0]
        stood += accepted
        texts.add(tuple(text))
    assert stood > 20
    assert len(texts) == 8


@pytest.mark.parametrize("verify", [Match(), Greedy(), Auto()])
@pytest.mark.parametrize("guess", GUESSES)
def test_greedy_text_is_that_of_plain_decoding(guess, verify):
    params = SamplingParams(temperature=0.0)
    assert write(verify, guess, params, 1)[0] == write(Match(), plain, params, 2)[0]


def test_among_twins_the_first_is_taken():
    tree = Tree((0, 1, 1, 2), (-1, 0, 0, 2))
    row = random_table(3, 1, support=[1])
    found = measure(Match(), row, lambda noise: tree)
    assert found.emitted == {(1, 1): 1.0}


def test_only_visited_rows_are_looked_at():
    tree = Tree((0, 1, 2, 3), (-1, 0, 1, 0))
    rows = score([tree], random_table(5, 33, support=[3]), [SAMPLED], [(0,)])
    looked = []
    pick = rows.pick
    rows.pick = lambda b, node, noise: looked.append(node) or pick(b, node, noise)
    assert Match()(Draft((tree,)), rows, SeededNoise([0])).paths == ((3,),)
    assert looked == [0, 3]
