"""Failures from the field about batches, seeds and memory in the engine; numbers are those of docs/failures.md."""

import random
from itertools import pairwise

import pytest
import torch

from forerun.control.fixed import Fixed
from forerun.core.errors import SpecError
from forerun.core.plan import Plan
from forerun.drafters.model import ModelDrafter, ModelOptions
from forerun.drafters.ngram import NgramDrafter
from forerun.testing.engines import Letters, toy_engine
from forerun.testing.noisy import NoisyDrafter
from forerun.testing.scripted import ScriptedDrafter, always
from forerun.testing.toy import ToyTarget, fixed_law, table_law


class Traced(Fixed):
    """A fixed plan that keeps every step's trace."""

    def __init__(self, plan, up_to=None):
        super().__init__(plan, up_to)
        self.steps = []

    def observe(self, step):
        self.steps.append(step)


def drain(engine, requests):
    while not all(map(engine.finished, requests)):
        engine.step()
    return [engine.collect(request) for request in requests]


@pytest.mark.parametrize("law", ["chosen", "sampled", "distinct"])
def test_18_the_seed_of_a_request_holds_for_drawn_drafts_too(law):
    flat = fixed_law([1 / 50] * 50)

    def run(seed, others=0, before=0):
        drafter = ModelDrafter(ToyTarget(flat, 50), ModelOptions(law=law))
        engine = toy_engine(flat, drafter, depth=3, vocab_size=50, eos_ids=())
        for i in range(before):
            engine.generate([i % 50], temperature=1.0, max_tokens=3)
        ids = [engine.add([9], temperature=1.0, seed=seed, max_tokens=20)]
        ids += [engine.add([i], temperature=1.0, max_tokens=20) for i in range(others)]
        return drain(engine, ids)[0].token_ids

    alone = run(7)
    assert run(7, before=100) == alone
    assert run(7, others=3) == alone
    assert run(8) != alone


@pytest.mark.parametrize("law", ["chosen", "sampled"])
def test_24_neighbouring_tokens_are_drawn_independently(law):
    flat = fixed_law([1 / 1000] * 1000)
    drafter = ModelDrafter(ToyTarget(flat, 1000), ModelOptions(law=law))
    engine = toy_engine(flat, drafter, depth=3, vocab_size=1000, eos_ids=())
    results = drain(engine, [engine.add([i], temperature=1.0, seed=i, max_tokens=500) for i in range(8)])
    pairs = [pair for r in results for pair in zip(r.token_ids, r.token_ids[1:], strict=False)]
    together = torch.tensor(pairs, dtype=torch.float64).T
    assert abs(float(torch.corrcoef(together)[0, 1])) < 0.06
    assert sum(a == b for a, b in pairs) / len(pairs) < 0.003
    assert law == "chosen" or all(result.stats.tau == 4.0 for result in results)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("block_size", [1, 16])
def test_79_a_batch_whose_members_accept_different_lengths(transformer, block_size, padded):
    prompts, counts = [[1], [2, 3, 4], [5, 6, 7, 8, 9, 10, 11], list(range(12, 24))], (0, 1, 2, 4)
    alone = [toy_engine(transformer.target(), eos_ids=()).generate(p, max_tokens=24).token_ids for p in prompts]
    wanted = []

    def guess(seq):
        right, stand = alone[seq.id][len(seq.output) :], counts[(seq.id + drafter.calls) % 4]
        wanted.append(min(stand, seq.room))
        return [token if i < stand else (token + 1) % 32 for i, token in enumerate(right[:4])]

    target, drafter, traced = transformer.checked(block_size=block_size), ScriptedDrafter(guess), Traced(Plan(4))
    transformer.pad(target, padded)
    engine = toy_engine(target, drafter, controller=traced, eos_ids=())
    results = engine.generate_batch(prompts, max_tokens=24)
    assert [result.token_ids for result in results] == alone
    assert [count for step in traced.steps for count in step.accepted] == wanted
    assert {step.accepted for step in traced.steps} >= {(1, 2, 4, 0), (2, 4, 0, 1)}


PERIOD = table_law(10, seed=1, order=2)


def decade(tokens):
    """Writes ids of the decade that the prompt [i, i, i] names."""
    row = torch.full((100,), float("-inf"), dtype=torch.float64)
    row[10 * tokens[0] : 10 * tokens[0] + 10] = PERIOD([token % 10 for token in tokens])
    return row


def test_80_texts_do_not_drift_between_requests_that_come_and_go():
    def ask(engine, i):
        return engine.add([i, i, i], max_tokens=50, temperature=0.5, seed=i)

    def fresh():
        return toy_engine(decade, NgramDrafter(), depth=4, vocab_size=100, eos_ids=())

    alone = []
    for i in range(8):
        engine = fresh()
        alone += drain(engine, [ask(engine, i)])
    assert all(result.stats.accepted for result in alone)
    engine, rng = fresh(), random.Random(0)
    for _ in range(20):
        delays, requests = [rng.randrange(12) for _ in range(8)], {}
        for step in range(12):
            requests |= {i: ask(engine, i) for i in range(8) if delays[i] == step}
            engine.step()
        for i, result in zip(requests, drain(engine, requests.values()), strict=True):
            assert {token // 10 for token in result.token_ids} == {i}
            assert result.token_ids == alone[i].token_ids
            assert result.stats.accepted == alone[i].stats.accepted


@pytest.mark.parametrize("size", range(1, 6))
def test_85_every_row_of_a_batch_keeps_its_own_distribution(size):
    def law(tokens):
        row = torch.full((50,), float("-inf"), dtype=torch.float64)
        row[10 * tokens[0] : 10 * tokens[0] + 10] = torch.tensor([0.9] + [0.1 / 9] * 9, dtype=torch.float64).log()
        return row

    drafter = NoisyDrafter(law, wrong=0.0, kind="sampled")
    engine = toy_engine(law, drafter, depth=3, vocab_size=50, eos_ids=())
    count = 600
    results = engine.generate_batch([[r] for r in range(size)], temperature=1.0, seed=size, max_tokens=count)
    for r, result in enumerate(results):
        assert {token // 10 for token in result.token_ids} == {r}
        share = result.token_ids.count(10 * r) / count
        assert abs(share - 0.9) < 4 * (0.9 * 0.1 / count) ** 0.5
        assert result.stats.acceptance == 1.0, "the draft's rows are the target's"


def test_105_a_batch_that_crosses_the_limit_back_and_forth():
    class Counted(ScriptedDrafter):
        def draft(self, seqs, plan, noise):
            assert len(seqs) <= 4
            return super().draft(seqs, plan, noise)

    traced = Traced(Plan(4), up_to=4)
    engine = toy_engine(
        table_law(16, 1), Counted(always([3, 1, 4, 1])), vocab_size=16, eos_ids=(), controller=traced, max_batch=6
    )
    lengths, requests = [5, 9, 14, 20] * 4, []
    while len(requests) < 16 or not all(map(engine.finished, requests)):
        if len(requests) < 16 and len(engine._scheduler.running) < 4:
            requests += [engine.add([len(requests) + i], max_tokens=lengths[len(requests) + i]) for i in range(2)]
        engine.step()
    batches = [len(step.sizes) for step in traced.steps]
    crossings = sum((a > 4) != (b > 4) for a, b in pairwise(batches))
    assert crossings >= 4
    for step, batch in zip(traced.steps, batches, strict=True):
        assert batch <= 4 or set(step.sizes) == {1}, "a step above the limit costs what plain decoding costs"
    assert any(max(step.sizes) > 1 for step in traced.steps)


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_112_every_ending_gives_every_block_back(transformer, block_size, reuse):
    target = transformer.target(block_size=block_size, kv_tokens=256, reuse=reuse)
    words = Letters([bytes([65 + i]) for i in range(32)])
    engine = toy_engine(target, always([1, 2, 3, 4, 5]), depth=5, eos_ids=range(6), words=words)
    rng, endings = random.Random(block_size), set()

    def broken(tokens):
        if len(tokens) > 3:
            raise RuntimeError("mine")

    ways = {
        "eos": {"max_tokens": 40},
        "stop": {"stop": ["H", "I", "J", "K", "L"], "ignore_eos": True, "max_tokens": 40},
        "length": {"ignore_eos": True, "max_tokens": 6},
        "cancel": {"ignore_eos": True, "max_tokens": 40},
        "error": {"allowed": broken, "logit_bias": dict.fromkeys(range(6), -100), "max_tokens": 40},
    }
    for i in range(100):
        way = list(ways)[i % 5]
        prompt = [rng.randrange(32) for _ in range(1 + i % 40)]
        request = engine.add(prompt, temperature=9.0, seed=i, **ways[way])
        try:
            while not engine.finished(request):
                engine.step()
                if way == "cancel" and rng.random() < 0.3:
                    break
        except RuntimeError:
            endings.add("error")
        reason = engine.cancel(request).finish_reason
        endings.add(("eos" if way == "eos" else way) if reason == "stop" else reason)
        assert target.usage.used == 0
        assert reuse or target.usage.free == target.pool.blocks
        target.pool.check_integrity()
    assert endings >= {"eos", "stop", "length", "cancelled", "error"}


def test_138_limits_under_which_nothing_would_ever_run_are_refused():
    for limits in ({"chunk": 0}, {"chunk": -1}, {"max_batch": 0}):
        with pytest.raises(SpecError, match=next(iter(limits))):
            toy_engine(table_law(16, 1), **limits)
