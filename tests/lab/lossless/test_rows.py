"""Rows are compared to the last bit: through the noise, along the text that was written, for drawn drafts too."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from forerun.core.rows import Rows
from forerun.core.vocabulary import Support
from forerun.lab.lossless import rows
from forerun.lab.lossless.asking import answer, questions
from forerun.lab.lossless.rows import RowStudy, followed, watched
from forerun.lab.lossless.watching import FAR, Seen
from forerun.lab.run import Run

SPECS = ("prediction", "skip:layers=1,law=sampled")
PURE = {"max_tokens": 8, "temperature": 1.2, "seed": 3, "ignore_eos": True}


def seen(values, ids=None):
    ids = None if ids is None else torch.tensor(ids)
    return Seen.of(Support(ids, torch.tensor(values, dtype=torch.float32)))


def test_equal_means_to_the_last_bit():
    row = seen([0.25, 0.75])
    assert row.equals(seen([0.25, 0.75]))
    assert not row.equals(seen([0.25, float(np.nextafter(np.float32(0.75), np.float32(1)))]))
    assert not row.equals(seen([0.25, 0.75], [0, 1]))
    assert not seen([0.25, 0.75], [0, 1]).equals(seen([0.25, 0.75], [0, 2]))
    assert not row.equals(Seen(None, row.values.astype(np.float64)))


def test_the_largest_difference_counts_what_one_row_lacks():
    assert seen([0.5, 0.5], [1, 4]).furthest(seen([0.6, 0.4], [1, 4])) == pytest.approx(0.1)
    assert seen([0.5, 0.5], [1, 4]).furthest(seen([1.0], [1])) == pytest.approx(0.5)
    masked = float("-inf")
    assert seen([1.0, masked]).furthest(seen([1.5, masked])) == pytest.approx(0.5)
    assert seen([1.0, masked]).furthest(seen([1.0, 0.0])) == FAR
    assert seen([1.0, float("nan")]).furthest(seen([1.0, 0.0])) == FAR


@pytest.fixture
def asked(bench, work):
    return questions(bench, [work], 8)[0]


def study(bench, asked, engines, samplings=("greedy", "sampled", "pure"), batch=2):
    return RowStudy(bench, engines, asked, samplings, batch, tokens=8, seed=5)


def test_every_row_of_every_arm_is_plain_decoding_s(bench, asked):
    engines = {spec: bench.arm(spec).engine for spec in SPECS}
    figures, samples = study(bench, asked, engines).measure(Run("lossless", None, {}))
    assert len(samples) == 18  # two batches of three arms in three ways
    for name, samplings in figures["arms"].items():
        for arm in samplings.values():
            assert arm["compared"] > 10
            assert arm["largest"] < 1e-5  # torch may round otherwise
            assert len(arm["differences"]) == min(20, arm["compared"] - arm["equal"])
        drafted = sum(arm["drafted"] for arm in samplings.values())
        assert (drafted > 0) == (name in SPECS)
    again = figures["arms"]["plain again"].values()
    assert all(arm["equal"] == arm["compared"] for arm in again)


def test_so_many_questions_run_at_once_as_were_asked_for(bench, asked, monkeypatch):
    """And what is found does not depend on it: seeds and predictions are a question's own."""
    sizes, real = [], rows.answer

    def counted(engine, asked, params):
        sizes.append(len(asked))
        return real(engine, asked, params)

    monkeypatch.setattr(rows, "answer", counted)
    engines = {"prediction": bench.arm("prediction").engine}
    found = {}
    for batch in (1, 2, 5):
        sizes.clear()
        figures, _ = study(bench, asked, engines, ["sampled"], batch).measure(Run("lossless", None, {}))
        assert max(sizes) == min(batch, 3)
        found[batch] = {name: arm["sampled"] for name, arm in figures["arms"].items()}
    for name, one in found[1].items():
        for other in (found[2][name], found[5][name]):
            assert (one["compared"], one["drafted"]) == (other["compared"], other["drafted"])


def test_plain_decoding_can_be_made_to_write_any_text(bench, asked):
    texts = [[7, 8, 9, 7, 8, 9, 7, 8]] * len(asked)
    results, rows = followed(bench.plain().engine, asked, [PURE] * len(asked), texts)
    assert [result.token_ids for result in results] == texts
    free, theirs = watched(bench.plain().engine, asked, [PURE] * len(asked))
    assert free[0].token_ids != texts[0]
    assert rows[0][0].equals(theirs[0][0])  # the same prompt
    assert not rows[0][7].equals(theirs[0][7])  # another text before it
    own = [result.token_ids for result in free]
    _, same = followed(bench.plain().engine, asked, [PURE] * len(asked), own)
    assert all(a.equals(b) for one, two in zip(same, theirs, strict=True) for a, b in zip(one, two, strict=True))


def test_what_the_sampler_was_handed_is_what_is_kept(bench, asked):
    """A verifier that draws from another row than the target's is seen by its draw, not by its good intentions."""
    engine = bench.plain().engine
    auto = engine.parts.verify

    class Tilted(type(auto)):
        def __call__(self, draft, rows, noise):
            return super().__call__(draft, rows, _Tilting(noise))

    class _Tilting:
        def __init__(self, noise):
            self.noise = noise

        def pick(self, b, slot, weights, ids=None):
            return self.noise.pick(b, slot, weights * 1.5, ids)

    engine.parts = replace(engine.parts, verify=Tilted())
    figures, _ = study(bench, asked, {"tilted": engine}, ["pure"]).measure(Run("lossless", None, {}))
    assert figures["arms"]["tilted"]["pure"]["equal"] == 0
    assert figures["arms"]["plain again"]["pure"]["largest"] == 0


class Nudged:
    """A target whose rows move by a rounding error as soon as something is drafted."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def score(self, work, keep=False, taps=()):
        rows = self.inner.score(work, keep)
        if all(len(item.nodes) == 1 for item in work):
            return rows
        return Rows(work, rows._logits * (1 + 3e-7), self.inner.spec.vocab_size)


def test_a_difference_too_small_to_change_the_text_is_seen(bench, asked):
    engine = bench.arm("prediction").engine
    engine.parts = replace(engine.parts, target=Nudged(engine.parts.target))
    engine._scheduler._target = engine.parts.target
    figures, _ = study(bench, asked, {"nudged": engine}, ["greedy"]).measure(Run("lossless", None, {}))
    found = figures["arms"]["nudged"]["greedy"]
    assert found["equal"] < found["compared"]
    assert 0 < found["largest"] < 1e-4
    assert {"prompt", "position", "largest"} == set(found["differences"][0])


def test_answers_are_in_order_and_a_batch_may_be_larger_than_the_engine_s(bench, asked):
    engine = bench.plain().engine
    engine._scheduler._max_batch = 2
    params = [{"max_tokens": 3 + i, "ignore_eos": True} for i in range(len(asked))]
    assert [len(r.tokens) for r in answer(engine, asked, params)] == [3, 4, 5]
    assert not engine.busy
