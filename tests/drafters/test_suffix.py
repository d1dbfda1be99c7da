from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.core.draft import Tree
from forerun.core.errors import SpecError
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.seq import Seq, Token
from forerun.drafters.suffix import SuffixDrafter, SuffixOptions
from forerun.testing.conformance import check_drafter
from forerun.testing.toy import scripted_law

NOISE = SeededNoise([0])


def proposal(drafter: SuffixDrafter, seq: Seq, plan: Plan) -> Tree:
    return drafter.draft([seq], plan, NOISE).trees[0]


def counts(texts: list[list[int]], context: list[int]) -> Counter[int]:
    """What follows `context` in the texts, and how often; of equals the newest comes first."""
    size = len(context)
    return Counter(
        text[at + size]
        for text in reversed(texts)
        for at in reversed(range(len(text) - size))
        if text[at : at + size] == context
    )


def brute(texts: list[list[int]], text: list[int], depth: int, plan: Plan, options: SuffixOptions) -> float:
    """The best score of all context lengths, every node found by its own search."""
    best = 0.0
    for length in range(options.min_match, min(options.max_depth, len(text)) + 1):
        context = text[len(text) - length :]
        reach = min(depth, int(length * options.factor + options.offset + 1e-6))
        chosen: dict[tuple[int, ...], float] = {(): 1.0}
        open_: dict[tuple[int, ...], float] = {(): 1.0}
        while open_ and len(chosen) <= plan.nodes:
            path = max(open_, key=lambda path: open_[path])
            chosen[path] = chance = open_.pop(path)
            below = counts(texts, [*context, *path]) if len(path) < reach else Counter()
            for token, count in below.most_common(plan.width):
                if (share := chance * count / below.total()) >= options.min_prob:
                    open_[*path, token] = share
        best = max(best, sum(chosen.values()) - 1.0)
    return best


texts = st.lists(st.integers(0, 2), min_size=2, max_size=24)


@settings(deadline=None)
@given(st.lists(texts, max_size=3), texts, st.integers(1, 3), st.integers(1, 5), st.integers(1, 6))
def test_the_best_tree_equals_a_search(answers, text, width, depth, nodes):
    options = SuffixOptions(candidates=4096)
    drafter, plan = SuffixDrafter(options), Plan(depth, nodes=nodes, width=width)
    for answer in answers:
        drafter.answers.add(answer)
    seq = Seq(0, text, SamplingParams(), 4096)
    drafter.begin(seq)
    tree = proposal(drafter, seq, plan)
    best = max(brute(source, text, depth, plan, options) for source in ([text], answers))
    assert (len(tree) > 1) == (best > 0)
    scores = [
        score_of(source, text, tree, length, options)
        for source in ([text], answers)
        for length in range(options.min_match, len(text) + 1)
    ]
    assert any(score == pytest.approx(best) for score in scores)


def score_of(source: list[list[int]], text: list[int], tree: Tree, length: int, options: SuffixOptions) -> float:
    """Expected tokens of a tree by the counts under one context; -1 where a node never followed or is too rare."""
    total = 0.0
    for node in range(1, len(tree)):
        chance, context = 1.0, text[len(text) - length :]
        for at in tree.path(node):
            below = counts(source, context)
            if not below[tree.tokens[at]]:
                return -1.0
            chance *= below[tree.tokens[at]] / below.total()
            context = [*context, tree.tokens[at]]
        total += chance
    return total


def test_the_likeliest_by_count_and_its_alternatives():
    text = [1, 2, 5, 0, 1, 2, 6, 0, 1, 2, 5, 3, 1, 2]
    seq, drafter = Seq(0, text, SamplingParams(), 4096), SuffixDrafter()
    drafter.begin(seq)
    assert proposal(drafter, seq, Plan(1)).tokens == (2, 5)
    tree = proposal(drafter, seq, Plan(1, width=2))
    assert (tree.tokens, tree.parents) == ((2, 5, 6), (-1, 0, 0))
    assert proposal(drafter, seq, Plan(4, width=3, nodes=1)).tokens == (2, 5)
    deep = proposal(drafter, seq, Plan(4, width=3))
    assert max(deep.depths()) == 2, "a context of two tokens drafts two deep"


def test_a_confident_plan_stops_below_what_is_unlikely():
    text = [1, 2, 5, 0, 1, 2, 6, 0, 1, 2, 5, 3, 1, 2]
    seq, drafter = Seq(0, text, SamplingParams(), 4096), SuffixDrafter()
    drafter.begin(seq)
    assert proposal(drafter, seq, Plan(4)).tokens == (2, 5, 3)
    assert proposal(drafter, seq, Plan(4, confidence=0.9)).tokens == (2, 5)


def test_earlier_answers_are_shared_unless_switched_off(decode):
    answer = list(range(10, 40))
    ask = SamplingParams(max_tokens=30)

    def rounds(drafter: SuffixDrafter) -> list[int]:
        return [len(decode(scripted_law(answer, 2, 64), drafter, [[1, 2]], Plan(8), ask).traces) for _ in range(2)]

    first, again = rounds(SuffixDrafter())
    assert first == 30
    assert again <= 8, "two plain tokens, then contexts of growing length"
    assert rounds(SuffixDrafter(SuffixOptions(cached=0))) == [30, 30]


class Counting(list):
    """A list that counts the tokens read from it."""

    reads = 0

    def __getitem__(self, at):
        got = super().__getitem__(at)
        Counting.reads += len(got) if isinstance(at, slice) else 1
        return got


@pytest.mark.parametrize("vocab", [3, 50_000])
def test_case_106_work_does_not_grow_with_the_prompt(vocab):
    def reads(length: int) -> int:
        rng = random.Random(1)
        drafter, seq = SuffixDrafter(), Seq(0, [], SamplingParams(), 1 << 20)
        seq.tokens = Counting(rng.randrange(vocab) for _ in range(length))
        drafter.begin(seq)
        Counting.reads = 0
        for _ in range(100):
            proposal(drafter, seq, Plan(8))
            seq.extend([Token(rng.randrange(vocab))])
        return Counting.reads

    assert reads(50_000) <= 3 * reads(1_000)


def test_a_preempted_answer_is_not_kept():
    drafter, seq = SuffixDrafter(), Seq(0, [1, 2], SamplingParams(max_tokens=4), 4096)
    drafter.begin(seq)
    seq.extend([Token(3), Token(4)])
    drafter.end(seq)
    assert len(drafter.answers) == 0
    drafter.begin(seq)
    seq.extend([Token(5), Token(6)])
    drafter.end(seq)
    assert drafter.answers.texts() == [[3, 4, 5, 6]]


def test_conformance():
    tally = check_drafter(SuffixDrafter)
    assert 0 < tally.accepted < tally.drafted


@pytest.mark.parametrize(
    "values",
    [{"min_match": 0}, {"max_depth": True}, {"min_prob": 1.5}, {"cached": -1}, {"min_match": 9, "max_depth": 8}],
)
def test_options_out_of_range(values):
    with pytest.raises(SpecError, match="suffix"):
        SuffixOptions(**values)


def test_signals_are_counts_and_change_nothing():
    text = [1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2]
    trees = []
    for signals in (False, True):
        drafter, seq = SuffixDrafter(SuffixOptions(factor=2.0)), Seq(0, text, SamplingParams(), 64)
        drafter.begin(seq)
        plan = Plan(2, nodes=6, width=2, signals=signals)
        trees.append(drafter.draft([seq], plan, SeededNoise([0])).trees[0])
    quiet, told = trees
    assert (quiet.tokens, quiet.parents) == (told.tokens, told.parents)
    assert not quiet.signals
    assert set(told.signals) == set(range(1, len(told)))
    first = {told.tokens[n]: told.signals[n] for n in range(1, len(told)) if told.parents[n] == 0}
    assert sum(signal.confidence for signal in first.values()) == pytest.approx(1.0)
    shares = [signal.confidence for signal in first.values()]
    assert all(s.entropy == pytest.approx(-sum(p * math.log(p) for p in shares)) for s in first.values())
