from __future__ import annotations

import pytest

from forerun.core.draft import Draft, Tree
from forerun.core.errors import LossyError
from forerun.core.noise import SeededNoise
from forerun.testing.exact import outcomes
from forerun.testing.gate import SAMPLED, score
from forerun.testing.tables import random_table
from forerun.verify import VERIFIERS, Match, TokenLevel, verifier

FORK = Tree((0, 1, 2), (-1, 0, 0))


def judge(verify, *trees, seeds=None):
    rows = score(trees, random_table(3, 1), [SAMPLED] * len(trees), [(0,)] * len(trees))
    return verify(Draft(trees), rows, SeededNoise(seeds or range(len(trees))))


@pytest.mark.parametrize("name", [name for name, made in VERIFIERS.items() if made.chains_only])
def test_a_tree_is_not_a_chain(name):
    with pytest.raises(LossyError, match=f"'{name}' judges chains only, got a tree of 3 nodes"):
        judge(verifier(name), FORK)


def test_a_law_that_is_not_known():
    class Picky(Match):
        name = "picky"
        laws = frozenset({"chosen"})

    judge(Picky(), FORK)
    with pytest.raises(LossyError, match="'picky' cannot judge a draft of law 'sampled'"):
        judge(Picky(), Tree.chain(0, [1], "sampled", {}))


def test_one_bad_tree_refuses_the_batch_before_anything_is_drawn():
    with pytest.raises(LossyError):
        judge(TokenLevel(), Tree.chain(0, [1]), FORK, seeds=[])


@pytest.mark.parametrize("name", [name for name, made in VERIFIERS.items() if not made.greedy_only])
def test_the_root_alone_is_plain_decoding(name):
    for seed in range(20):
        verdict = judge(verifier(name), Tree.root(0), seeds=[seed])
        assert verdict.paths == ((),)
        assert verdict.bonus == judge(Match(), Tree.root(0), seeds=[seed]).bonus


@pytest.mark.parametrize("name", ["match", "tree", "traversal", "auto", "reference"])
def test_sequences_of_a_batch_are_independent(name):
    """The joint law of two verdicts is the product of their own."""
    target = random_table(3, 1)

    def judged(*trees):
        rows = score(trees, target, [SAMPLED] * len(trees), [(0,)] * len(trees))

        def run(noise):
            verdict = verifier(name)(Draft(trees), rows, noise)
            return tuple(zip(verdict.paths, verdict.bonus, strict=True))

        return outcomes(run)

    chain = Tree.chain(0, [1, 2])
    both, fork, line = judged(FORK, chain), judged(FORK), judged(chain)
    assert len(both) == len(fork) * len(line)
    for (a, b), chance in both.items():
        assert chance == pytest.approx(fork[a,] * line[b,], abs=1e-14)


def test_an_empty_batch():
    verdict = TokenLevel()(Draft(()), None, SeededNoise([]))
    assert verdict.paths == ()
