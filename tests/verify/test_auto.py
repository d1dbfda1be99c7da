from __future__ import annotations

import pytest

from forerun.core.draft import Draft
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.testing.exact import table_draft, widths
from forerun.testing.gate import SAMPLED, score
from forerun.testing.tables import random_table
from forerun.verify import Auto, Block, Match, Traversal

GREEDY = SamplingParams(temperature=0.0)


@pytest.mark.parametrize(
    ("law", "shape", "params", "rule"),
    [
        ("chosen", widths(2, 2), SAMPLED, Match),
        ("chosen", widths(1, 1), SAMPLED, Match),
        ("sampled", widths(1, 1), SAMPLED, Block),
        ("distinct", widths(1, 1), SAMPLED, Block),
        ("sampled", widths(2, 2), SAMPLED, Traversal),
        ("distinct", widths(2, 2), SAMPLED, Traversal),
        ("distinct", widths(2, 2), GREEDY, Match),
        ("sampled", widths(1, 1), GREEDY, Match),
    ],
)
def test_each_tree_gets_its_rule(law, shape, params, rule):
    target, drafter = random_table(4, 61), random_table(4, 62)
    for seed in range(60):
        noise = SeededNoise([seed])
        tree = table_draft(noise, (0,), drafter, shape, law)
        rows = score([tree], target, [params], [(0,)])
        assert Auto()(Draft((tree,)), rows, noise) == rule()(Draft((tree,)), rows, noise)


def test_a_batch_of_all_laws():
    target, drafter = random_table(4, 63), random_table(4, 64)
    kinds = [("chosen", widths(2, 2)), ("sampled", widths(1, 1)), ("distinct", widths(2, 2))]
    noise = SeededNoise([7, 8, 9])
    trees = [table_draft(noise, (0,), drafter, shape, law, b) for b, (law, shape) in enumerate(kinds)]
    rows = score(trees, target, [SAMPLED] * 3, [(0,)] * 3)
    verdict = Auto()(Draft(tuple(trees)), rows, noise)
    for b, rule in enumerate((Match, Block, Traversal)):
        alone = rule()(Draft((trees[b],)), score([trees[b]], target, [SAMPLED], [(0,)]), SeededNoise([7 + b]))
        assert (alone.paths[0], alone.bonus[0]) == (verdict.paths[b], verdict.bonus[b])
