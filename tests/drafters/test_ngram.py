from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.core.errors import SpecError
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.seq import Seq, Token
from forerun.drafters.ngram import NgramDrafter, NgramOptions
from forerun.testing.conformance import check_drafter
from forerun.testing.scripted import ScriptedDrafter
from forerun.testing.toy import scripted_law

NOISE = SeededNoise([0])


def proposal(drafter: NgramDrafter, seq: Seq, plan: Plan) -> list[int]:
    tree = drafter.draft([seq], plan, NOISE).trees[0]
    assert tree.is_chain
    return list(tree.tokens[1:])


def brute(tokens: list[int], options: NgramOptions, depth: int) -> list[int]:
    """Longest match first, the most recent among equals, reading on through its own draft."""
    for length in range(min(options.max, len(tokens) - 1), options.min - 1, -1):
        for place in range(len(tokens) - 1, length - 1, -1):
            if tokens[place - length : place] == tokens[-length:]:
                text = list(tokens)
                for at in range(min(depth, int(options.factor * length + options.offset))):
                    text.append(text[place + at])
                return text[len(tokens) :]
    return []


def test_conformance():
    tally = check_drafter(NgramDrafter)
    assert 0 < tally.accepted < tally.drafted


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=30),
    st.integers(1, 3),
    st.integers(0, 4),
    st.integers(1, 9),
    st.lists(st.integers(1, 6), max_size=6),
)
def test_proposals_equal_a_search(tokens, least, more, depth, steps):
    options = NgramOptions(min=least, max=least + more)
    drafter, seq = NgramDrafter(options), Seq(0, tokens[:1], SamplingParams(), 4096)
    drafter.begin(seq)
    for step in [*steps, len(tokens)]:
        seq.extend(Token(token) for token in tokens[len(seq) : len(seq) + step])
        assert proposal(drafter, seq, Plan(depth)) == brute(seq.tokens, options, depth)


def test_a_period_is_carried_on():
    drafter, seq = NgramDrafter(), Seq(0, [1, 2, 1, 2], SamplingParams(), 4096)
    drafter.begin(seq)
    assert proposal(drafter, seq, Plan(5)) == [1, 2, 1], "a match of two tokens drafts three"
    assert proposal(drafter, seq, Plan(3)) == [1, 2, 1]
    assert proposal(drafter, seq, Plan(3, nodes=2)) == [1, 2]


def test_a_long_match_is_not_lost_behind_many_short_ones():
    rng = random.Random(0)
    page = [rng.randrange(100, 200) for _ in range(60)]
    page[9:60:10] = [1] * 6
    page[10:60:10] = [2] * 5
    noise = [1, 2, *[token for i in range(20) for token in (300 + i, 1, 2)]]
    seq = Seq(0, [*page, *noise, *page[:6]], SamplingParams(), 4096)
    drafter = NgramDrafter(NgramOptions(candidates=3))
    drafter.begin(seq)
    for at in range(6, 40, 4):
        assert proposal(drafter, seq, Plan(4)) == page[at : at + 4]
        seq.extend(Token(token) for token in page[at : at + 4])


class Counting(list):
    """A list that counts the tokens read from it."""

    reads = 0

    def __getitem__(self, at):
        got = super().__getitem__(at)
        Counting.reads += len(got) if isinstance(at, slice) else 1
        return got


@pytest.mark.parametrize("vocab", [3, 50_000])
@pytest.mark.parametrize("longest", [4, 64])
def test_case_106_work_does_not_grow_with_the_prompt(longest, vocab):
    def reads(length: int) -> int:
        rng = random.Random(1)
        drafter = NgramDrafter(NgramOptions(max=longest))
        seq = Seq(0, [], SamplingParams(), 1 << 20)
        seq.tokens = Counting(rng.randrange(vocab) for _ in range(length))
        drafter.begin(seq)
        Counting.reads = 0
        for _ in range(200):
            proposal(drafter, seq, Plan(8))
            seq.extend([Token(rng.randrange(vocab))])
        return Counting.reads

    assert reads(100_000) <= 3 * reads(1_000)


def test_case_1_the_first_drafted_token_is_judged(decode):
    law, ask = scripted_law([7, 8, 9], 3, 64), SamplingParams(max_tokens=3)
    first = decode(law, NgramDrafter(), [[1, 1, 1]], Plan(1), ask)
    assert (first.tokens, first.drafted[0], first.accepted[0]) == ([7, 8, 9], 1, 0)
    second = decode(law, ScriptedDrafter(lambda seq: [7]), [[1, 1, 1]], Plan(1), ask)
    assert (second.tokens, second.accepted[0]) == ([7, 8, 9], 1)


def test_case_34_no_end_of_text(decode):
    prompt = [5, 6, 7, 8, 9, 10, 11, 7, 8]
    seq = Seq(0, prompt, SamplingParams(max_tokens=15), 4096)
    drafter = NgramDrafter(NgramOptions(min=2, max=2))
    drafter.begin(seq)
    assert proposal(drafter, seq, Plan(3)) == [9, 10, 11]
    run = decode(scripted_law([9, 10, 11] * 5, 9, 64), drafter, [prompt], Plan(3), SamplingParams(max_tokens=15))
    assert len(run.tokens) == 15
    assert run.seqs[0].finish_reason == "length"


def test_case_129_nothing_of_the_previous_request(decode):
    drafter, seen = NgramDrafter(), []
    old = [100 + i % 50 for i in range(200)]
    decode(scripted_law(old, 3, 256), drafter, [old[:3]], Plan(4), SamplingParams(max_tokens=200), vocab_size=256)
    ask = SamplingParams(max_tokens=6)
    spy = ScriptedDrafter(lambda seq: seen.append(proposal(drafter, seq, Plan(4))) or seen[-1])
    spy.begin, spy.end = drafter.begin, drafter.end
    run = decode(scripted_law([3, 4, 1, 2, 3, 4], 6, 256), spy, [[1, 2, 3, 4, 1, 2]], Plan(4), ask, vocab_size=256)
    assert run.tokens == [3, 4, 1, 2, 3, 4]
    assert {token for chain in seen for token in chain} <= {1, 2, 3, 4}
    assert seen[0] == [3, 4, 1]
    fresh = decode(
        scripted_law([3, 4, 1, 2, 3, 4], 6, 256), NgramDrafter(), [[1, 2, 3, 4, 1, 2]], Plan(4), ask, vocab_size=256
    )
    assert run.accepted == fresh.accepted


@pytest.mark.parametrize(
    "values",
    [{"min": 0}, {"min": True}, {"max": 2.0}, {"min": 5, "max": 4}, {"candidates": 0}, {"factor": float("nan")}],
)
def test_options_out_of_range(values):
    with pytest.raises(SpecError, match="ngram"):
        NgramOptions(**values)
