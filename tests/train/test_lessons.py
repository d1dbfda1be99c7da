"""What a head is taught is what it is asked for: rows of a lesson against rows of the head as it serves."""

from __future__ import annotations

import pytest
import torch

from forerun.cache.pool import Table
from forerun.cache.view import Part
from forerun.core.draft import Tree
from forerun.models.heads.plain import TorchMedusa, TorchRecurrent
from forerun.train import unrolled
from forerun.train.batches import Batch
from forerun.train.ends import Ends
from forerun.train.kinds import Recipe, folded, pupil
from forerun.train.losses import row_loss
from forerun.weights.folder import open_checkpoint

STEPS = 3


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def ends(request, tiny_folder):
    return Ends.of(open_checkpoint(tiny_folder), request.param)


@pytest.fixture
def heard(monkeypatch):
    """Every call of the loss, (states, end, target rows) in float32; all words are looked at."""
    calls = []
    whole = row_loss
    monkeypatch.setattr(unrolled, "POSSIBLE", -1.0)

    def apply(states, end, bias, target, which, loss, looked):
        assert not bias.any()
        calls.append((states.detach().float(), end.detach().float(), target[which].float()))
        return whole(states, end, bias, target, which, loss, looked)

    monkeypatch.setattr(unrolled, "row_loss", apply)
    return calls


def small(corpus, count=3):
    return [corpus.load(place) for place in list(corpus)[:count]]


def taught(kind, corpus, ends, heard, samples, **recipe):
    made = pupil(Recipe(kind, draft_vocab=60, steps=STEPS, seed=5, **recipe), corpus, ends)
    draw = torch.Generator().manual_seed(8)
    for value in made.weights.values():  # nothing stays as it began, so that every tensor counts
        value += 0.05 * torch.randn(value.shape, generator=draw)
    with torch.no_grad():
        _, told = made.lesson(made.weights, Batch.of(samples))
    return made, told, list(heard)


def learnt_slots(sample, words, step):
    """(slot, position of the label) of the rows that a step learns: the next token is answered and a draft word."""
    known = set(words.tolist())
    n = len(sample.tokens)
    for slot in range(n - 1):
        position = slot + step + 1  # whose row of the target is the label
        if position + 1 < n and bool(sample.answered[position + 1]) and int(sample.tokens[position + 1]) in known:
            yield slot, position


def first_slot(batch):
    return max(0, batch.first_answered() - 1)


@pytest.mark.parametrize("kind", ["eagle3", "mtp", "p-eagle"])
def test_unrolled_rows_are_those_of_serving(kind, corpus, ends, heard):
    samples = small(corpus)
    made, _, calls = taught(kind, corpus, ends, heard, samples)
    assert len(calls) == STEPS
    words = made.lesson.words
    head = made.finish(made.weights).head
    runner = TorchRecurrent(head, ends.embedding.float(), ends.end.float())
    first = first_slot(Batch.of(samples))
    at = [0] * STEPS
    for sample in samples:
        features = sample.states[:, made.lesson.columns].float()
        for step in range(STEPS):
            if kind == "p-eagle" and step:
                break  # some anchors are left out there; the masked rows have a test of their own
            for slot, position in learnt_slots(sample, words, step):
                if slot < first:
                    continue
                row = at[step]
                at[step] += 1
                states, end, target = calls[step]
                label = torch.softmax(
                    sample.states[position, -ends.config.hidden_size :].float() @ ends.rows(words).float().T, -1
                )
                torch.testing.assert_close(target[row], label, atol=0.02, rtol=0.05)
                if row % 3:
                    continue
                served = chain(runner, sample.tokens, features, slot, step)
                mine = states[row] @ end.T
                error = float((served - mine).norm() / served.norm())
                assert error < 0.05, (kind, step, slot)
    for step in range(STEPS if kind != "p-eagle" else 1):
        assert at[step] == len(calls[step][0]), "every learnt row was looked at"


def chain(runner, tokens, features, slot, step):
    """The row of a draft below slot: `step` further true tokens, with the head's own features."""
    runner.open(40, 16)
    table = Table(list(range(40)))
    ids = tokens.tolist()
    done = runner.forward(
        [Part(table, 0, slot, Tree((ids[slot + 1],), (-1,)))], ids[1 : slot + 2], features[: slot + 1], False
    )
    state = done.states[-1:]
    for j in range(1, step + 1):
        drafted = [ids[slot + 1 + k] for k in range(1, j + 1)]
        tree = Tree.chain(ids[slot + 1], drafted)
        done = runner.forward([Part(table, slot, 0, tree, j)], drafted[-1:], state, True)
        state = done.states[-1:]
    return done.logits[-1]


def test_masked_rows_of_p_eagle(corpus, ends, heard, monkeypatch):
    """One sample, all anchors kept: depth d's row is that of d masks below the anchor's slot."""
    sample = small(corpus, 1)[0]
    made = pupil(Recipe("p-eagle", draft_vocab=60, steps=STEPS, seed=5), corpus, ends)
    lesson = made.lesson
    object.__setattr__(lesson, "rate", 1.0)
    for name, value in made.weights.items():
        value += 0.05 * torch.randn(value.shape, generator=torch.Generator().manual_seed(len(name)))
    with torch.no_grad():
        lesson(made.weights, Batch.of([sample]))
    monkeypatch.setattr("forerun.train.made.own.compacted", lambda head: head)  # int8 rows would differ by as much
    head = made.finish(made.weights).head
    runner = TorchRecurrent(head, ends.embedding.float(), ends.end.float())
    mask = head.floats("mask_hidden")
    assert not any(bool((corpus.load(place).tokens == head.config.mask_id).any()) for place in corpus)
    features, ids = sample.states[:, lesson.columns].float(), sample.tokens.tolist()
    first = first_slot(Batch.of([sample]))
    for step in range(STEPS):
        rows = [slot for slot, _ in learnt_slots(sample, lesson.words, step) if slot >= first]
        assert len(rows) == len(heard[step][0])
        for row, slot in list(enumerate(rows))[::4]:
            runner.open(40, 16)
            masks = [head.config.mask_id] * step
            tree = Tree.chain(ids[slot + 1], masks)
            fed = torch.cat([features[: slot + 1], mask.expand(step, -1)])
            done = runner.forward(
                [Part(Table(list(range(40))), 0, slot, tree)], [*ids[1 : slot + 2], *masks], fed, False
            )
            mine = heard[step][0][row] @ heard[step][1].T
            assert float((done.logits[-1] - mine).norm() / mine.norm()) < 0.05


def test_medusa_rows_are_those_of_serving(corpus, ends, heard):
    samples = small(corpus)
    made, _, calls = taught("medusa", corpus, ends, heard, samples)
    runner = TorchMedusa(made.finish(made.weights).head, ends.end.float())
    first = first_slot(Batch.of(samples))
    for step in range(STEPS):
        states, end, _ = calls[step]
        wanted = [
            (sample, slot)
            for sample in samples
            for slot, _ in learnt_slots(sample, made.lesson.words, step)
            if slot >= first
        ]
        assert len(wanted) == len(states)
        for row, (sample, slot) in list(enumerate(wanted))[::3]:
            served = runner.forward(sample.states[slot, -ends.config.hidden_size :].float()[None])[0, step]
            mine = states[row] @ end.T
            assert float((served - mine).norm() / served.norm()) < 0.05


def test_words_that_are_not_looked_at_are_spoken_for(corpus, ends):
    """Over many draws of the other words, the mean weight of all words is what it is over all of them."""
    batch = Batch.of(small(corpus))
    words = torch.arange(0, ends.config.vocab_size, 2)
    first = first_slot(batch)
    whole = unrolled.Labels.of(batch, first, 1, ends, words, others=10**6)
    assert len(whole.looked) == len(words)
    assert not whole.bias.any()
    logits = torch.randn(len(words), generator=torch.Generator().manual_seed(0))
    sums = []
    for seed in range(400):
        torch.manual_seed(seed)
        part = unrolled.Labels.of(batch, first, 1, ends, words, others=3)
        sums.append(float((logits[part.looked] + part.bias.float()).exp().sum()))
    if len(part.looked) == len(words):
        pytest.skip("this target thinks all words possible")
    assert sum(sums) / len(sums) == pytest.approx(float(logits.exp().sum()), rel=0.1)


def test_folding_moves_the_scale_into_the_weights():
    from forerun.testing.heads import random_config, random_head

    for kind in ("eagle3", "p-eagle", "eagle"):
        head = random_head(random_config(kind, 12, 12), 1)
        c = head.config
        scale = torch.rand(c.features) + 0.5
        features = torch.randn(4, c.features)
        w = dict(head.tensors)
        found = folded(c, w, scale)
        if kind == "eagle":
            whole = torch.cat([torch.ones(4, c.hidden_size), features / scale], -1) @ w["fc.weight"].T
            assert torch.allclose(
                torch.cat([torch.ones(4, c.hidden_size), features], -1) @ found["fc.weight"].T, whole, atol=1e-5
            )
        else:
            assert torch.allclose((features / scale) @ w["fc.weight"].T, features @ found["fc.weight"].T, atol=1e-5)
