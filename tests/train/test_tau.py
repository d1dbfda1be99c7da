"""Tau of what training made."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from forerun.assemble import engine_over
from forerun.core.errors import SpecError
from forerun.native import ext
from forerun.train.corpus import Place
from forerun.train.gather import target_for
from forerun.train.tau import Measurer, Question, split


@dataclass(frozen=True)
class Itself:
    """The target as its own drafter, whose guesses all stand."""

    folder: Path
    parameters: int = 0

    @contextmanager
    def serving(self, base, plan=""):
        with engine_over(base, ",".join(filter(None, (f"model:path={self.folder}", plan)))) as engine:
            yield engine


@pytest.mark.skipif(ext.extension() is None, reason="the native extension was not built")
@pytest.mark.parametrize("plan", ["", "depth=3"])
def test_many_prompts_at_once_have_the_tau_of_each_alone(plan, tiny_folder):
    """However many are served together, none gets a smaller tree for it, though together they share a forward."""
    base = target_for(str(tiny_folder), 16, max_len=200)
    made = Itself(tiny_folder)
    prompts = [Question(f"domain {i}", f"{i}, {i + 1}, {i + 2}") for i in range(15)]
    together = Measurer(base, prompts, 24, plan)(made)
    alone = {prompt.domain: Measurer(base, [prompt], 24, plan)(made).all for prompt in prompts}
    assert together.by_domain == alone
    assert together.all > 2.5
    assert together.prompts == 15


@pytest.mark.parametrize(("count", "held"), [(2, [0]), (10, [0, 9]), (25, [0, 16, 23, 24]), (80, [0, 16, 32, 48])])
def test_329_few_conversations_hold_out_a_fifth_at_most_four_a_domain(count, held, tmp_path):
    places = [Place(tmp_path, number, "own", True, str(number), 9, 5, 0, 0) for number in range(count)]
    learnt, asked = split(SimpleNamespace(folder=tmp_path), places, 4)
    assert sorted(int(one.text) for one in asked) == held
    assert not {place.prompt for place in learnt} & {one.text for one in asked}
    with pytest.raises(SpecError, match="one to learn from"):
        split(SimpleNamespace(folder=tmp_path), places[:1], 4)
