"""Which rule accepts more: block over token, traversal over recursive rejection, and block = traversal on chains."""

from __future__ import annotations

import pytest

from forerun.core.draft import Draft
from forerun.testing.exact import outcomes, table_draft, widths
from forerun.testing.gate import SAMPLED, measure, score
from forerun.testing.tables import random_table
from forerun.verify import Auto, Block, Match, TokenLevel, Traversal, TreeRejection

SEEDS = range(40, 46)


def accepted(verify, law, shape, seed, zeros):
    target, drafter = random_table(3, seed, zeros=zeros), random_table(3, seed + 100, zeros=zeros)
    return measure(verify, target, lambda noise: table_draft(noise, (0,), drafter, shape, law)).accepted


@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_block_accepts_at_least_what_token_level_does(zeros):
    gains = []
    for seed in SEEDS:
        block, token = (accepted(verify, "sampled", widths(1, 1, 1), seed, zeros) for verify in (Block(), TokenLevel()))
        gains.append(block - token)
    assert min(gains) > -1e-12
    assert max(gains) > 0.01


def test_one_token_deep_they_are_one_rule():
    for seed in SEEDS:
        block, token = (accepted(verify, "sampled", widths(1), seed, 0.3) for verify in (Block(), TokenLevel()))
        assert block == pytest.approx(token, abs=1e-12)


@pytest.mark.parametrize("law", ["sampled", "distinct"])
@pytest.mark.parametrize("shape", [widths(2, 2), (((), ((),)), ())], ids=str)
def test_traversal_accepts_at_least_what_recursive_rejection_does(law, shape):
    gains = []
    for seed in SEEDS:
        ours, theirs = (accepted(verify, law, shape, seed, 0.2) for verify in (Traversal(), TreeRejection()))
        gains.append(ours - theirs)
    assert min(gains) > -1e-12
    assert max(gains) > 0.001


def test_no_rule_accepts_more_of_a_chosen_tree_than_matching():
    for seed in SEEDS:
        best = accepted(Match(), "chosen", widths(2, 2), seed, 0.2)
        for verify in (TreeRejection(), Traversal(), Auto()):
            assert accepted(verify, "chosen", widths(2, 2), seed, 0.2) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("law", ["sampled", "distinct", "chosen"])
def test_on_chains_traversal_is_block(law):
    for seed in SEEDS:
        target, drafter = random_table(3, seed, zeros=0.2), random_table(3, seed + 100, zeros=0.2)
        laws = []
        for verify in (Traversal(), Block()):

            def run(noise, verify=verify):
                tree = table_draft(noise, (0,), drafter, widths(1, 1, 1), law)
                verdict = verify(Draft((tree,)), score([tree], target, [SAMPLED], [(0,)]), noise)
                return tree.tokens, verdict.paths, verdict.bonus

            laws.append(outcomes(run))
        ours, theirs = laws
        for verdict in {*ours, *theirs}:
            assert ours.get(verdict, 0.0) == pytest.approx(theirs.get(verdict, 0.0), abs=1e-13)
