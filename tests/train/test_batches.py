"""Batches: every sample once an epoch, within the limit, found again from any step on."""

from __future__ import annotations

import itertools

import torch

from forerun.train.batches import Batch, batches, plan_epoch


def test_an_epoch_has_every_sample_once_and_keeps_the_limit(corpus):
    places = list(corpus)
    for most in (1, 200, 600):
        groups = plan_epoch(places, 3, 0, most)
        assert sorted(p.number for group in groups for p in group) == sorted(p.number for p in places)
        assert all(len(group) == 1 or len(group) * max(p.length for p in group) <= most for group in groups)
    assert plan_epoch(places, 3, 0, 200) == plan_epoch(places, 3, 0, 200)
    assert plan_epoch(places, 3, 0, 200) != plan_epoch(places, 3, 1, 200)


def test_a_stream_goes_on_from_any_step(corpus):
    places = list(corpus)
    epoch = len(plan_epoch(places, 3, 0, 200))
    whole = list(itertools.islice(batches(corpus, places, 3, 200), 2 * epoch + 3))
    for start in (1, epoch - 1, epoch, 2 * epoch + 1):
        stream = batches(corpus, places, 3, 200, start)
        assert torch.equal(next(stream).tokens, whole[start].tokens)
        stream.close()


def test_padding_is_not_answered(corpus):
    samples = [corpus.load(place) for place in list(corpus)[:4]]
    batch = Batch.of(samples)
    assert batch.learnt == sum(sample.learnt for sample in samples)
    assert batch.first_answered() == min(int(sample.answered.nonzero()[0]) for sample in samples)
    for row, sample in enumerate(samples):
        n = len(sample.tokens)
        assert torch.equal(batch.states[row, : n - 1], sample.states)
        assert not batch.states[row, n - 1 :].any()
        assert int(batch.lengths[row]) == n
