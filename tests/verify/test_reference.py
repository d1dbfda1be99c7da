"""The fast verifiers give the oracle's verdicts, with the oracle's probabilities and from the oracle's draws."""

from __future__ import annotations

import pytest

from forerun.core.draft import Draft
from forerun.core.noise import SeededNoise
from forerun.testing.exact import outcomes, table_draft, widths
from forerun.testing.gate import SAMPLED, score
from forerun.testing.tables import random_table
from forerun.verify import Reference, verifier

CHAIN = widths(1, 1)
LAWS = ["sampled", "distinct", "chosen"]


def verdicts(verify, rows, tree):
    def run(noise):
        verdict = verify(Draft((tree,)), rows, noise)
        return verdict.paths[0], verdict.bonus[0]

    return outcomes(run)


def trees(law, shape, drafter):
    """Every tree that can be drawn."""
    drawn = {}

    def run(noise):
        tree = table_draft(noise, (0,), drafter, shape, law)
        drawn[tree.tokens] = tree
        return tree.tokens

    outcomes(run)
    return drawn.values()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("name", "shape"), [("token", CHAIN), ("tree", CHAIN), ("tree", widths(2, 2)), ("tree", widths(3, 1))], ids=str
)
@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_same_law_of_verdicts(name, law, shape, zeros):
    target, drafter = random_table(3, 21, zeros=zeros), random_table(3, 22, zeros=zeros)
    for tree in [*trees(law, shape, drafter)][::5]:
        rows = score([tree], target, [SAMPLED], [(0,)])
        ours, oracle = verdicts(verifier(name), rows, tree), verdicts(Reference(), rows, tree)
        for verdict in {*ours, *oracle}:
            assert ours.get(verdict, 0.0) == pytest.approx(oracle.get(verdict, 0.0), abs=1e-13)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("name", "shape"), [("token", CHAIN), ("tree", widths(3, 2, 1))], ids=str)
def test_same_verdict_from_the_same_seed(name, law, shape):
    target, drafter = random_table(6, 23), random_table(6, 24)
    for seed in range(200):
        noise = SeededNoise([seed])
        tree = table_draft(noise, (0, 3), drafter, shape, law)
        rows = score([tree], target, [SAMPLED], [(0, 3)])
        assert verifier(name)(Draft((tree,)), rows, noise) == Reference()(Draft((tree,)), rows, noise)
