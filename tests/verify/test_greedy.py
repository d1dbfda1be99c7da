from __future__ import annotations

import pytest

from forerun.core.draft import Draft, Tree
from forerun.core.errors import SpecError
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.testing.gate import SAMPLED, score
from forerun.testing.tables import script_table
from forerun.verify import Greedy

TREE = Tree((0, 3, 5, 6, 7), (-1, 0, 0, 2, 3))
SCRIPT = script_table([5, 6, 9], 12)


def test_walks_down_the_likeliest_tokens():
    rows = score([TREE], SCRIPT, [SamplingParams()], [(0,)])
    verdict = Greedy()(Draft((TREE,)), rows, SeededNoise([0]))
    assert verdict.paths == ((2, 3),)
    assert verdict.bonus == (9,)


def test_refuses_temperature():
    rows = score([TREE, TREE], SCRIPT, [SamplingParams(), SAMPLED], [(0,), (0,)])
    with pytest.raises(SpecError, match="takes temperature 0 only, got 1: use 'match' or 'auto'"):
        Greedy()(Draft((TREE, TREE)), rows, SeededNoise([0, 1]))
