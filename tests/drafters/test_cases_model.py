"""Failures from the field about drafting with a model, on a real network in both roles; see docs/failures.md."""

import random

import pytest

from forerun.control.fixed import Fixed
from forerun.core.draft import Draft, Tree
from forerun.core.plan import Plan
from forerun.drafters.model import ModelDrafter
from forerun.testing.engines import toy_engine


class Traced(Fixed):
    """A fixed plan that keeps what was accepted."""

    def __init__(self, plan):
        super().__init__(plan)
        self.accepted, self.drafted = [], []

    def observe(self, step):
        self.accepted += step.accepted
        self.drafted += [size - 1 for size in step.sizes]


class Forced(ModelDrafter):
    """As if the model had been mistaken from a given depth on: in round n after `pattern[n]` right tokens."""

    def __init__(self, target, pattern):
        super().__init__(target)
        self.pattern, self.seq = iter(pattern), None

    def draft(self, seqs, plan, noise):
        (tree,) = super().draft(seqs, plan, noise).trees
        (self.seq,), right = seqs, next(self.pattern)
        return Draft((Tree(tuple(t if n <= right else (t + 1) % 32 for n, t in enumerate(tree.tokens)), tree.parents),))


@pytest.mark.parametrize(("count", "rounds"), [(4, 1), (11, 3)])
def test_7_the_same_model_in_both_roles_runs_to_the_end(transformer, count, rounds):
    plain = toy_engine(transformer.target(), eos_ids=()).generate([1, 2, 3], max_tokens=count)
    engine = toy_engine(transformer.target(), ModelDrafter(transformer.target()), depth=4, eos_ids=())
    result = engine.generate([1, 2, 3], max_tokens=count)
    assert len(result.token_ids) == count
    assert (result.token_ids, result.finish_reason) == (plain.token_ids, "length")
    assert (result.stats.acceptance, result.stats.target_passes) == (1.0, rounds)


@pytest.mark.parametrize("block_size", [1, 16])
def test_73_both_memories_cover_the_text_after_every_round(transformer, block_size):
    pattern = [0, 1, 2, 3, 4, 4, 0] * 9
    target, own = (transformer.checked(block_size=block_size) for _ in range(2))
    drafter, traced = Forced(own, pattern), Traced(Plan(4))
    engine = toy_engine(target, drafter, controller=traced, eos_ids=())
    request = engine.add([1, 2, 3], max_tokens=60)
    while not engine.finished(request):
        engine.step()
        seq = drafter.seq
        if not seq.finished:
            assert target.held(seq) == len(seq) - 1
            assert len(seq) - 1 - own.held(seq) == (traced.accepted[-1] == 4), "it lags by the last token it proposed"
            for holder in (target, own):
                assert holder._open[seq].tokens == seq.tokens[: holder.held(seq)]
                holder.pool.check_integrity()
    plain = toy_engine(transformer.target(), eos_ids=()).generate([1, 2, 3], max_tokens=60)
    assert engine.collect(request).token_ids == plain.token_ids
    assert traced.accepted[:-1] == pattern[: len(traced.accepted) - 1]


def test_73_unforced_every_round_is_accepted_whole(transformer):
    traced = Traced(Plan(4))
    engine = toy_engine(transformer.checked(), ModelDrafter(transformer.checked()), controller=traced, eos_ids=())
    assert engine.generate([1, 2, 3], max_tokens=60).stats.acceptance == 1.0
    assert traced.accepted == traced.drafted == [4] * 12


@pytest.mark.parametrize("reuse", [True, False])
def test_114_the_draft_model_s_memory_is_flat(transformer, reuse):
    """Sixty requests instead of the three hundred: what leaks per request leaks from the first on."""
    own = transformer.target(kv_tokens=1024, reuse=reuse)
    drafter, limit, rng = ModelDrafter(own), own.kv_bytes, random.Random(1)
    engine = toy_engine(transformer.target(), drafter, depth=4, eos_ids=())
    for _ in range(60):
        engine.generate([rng.randrange(32) for _ in range(rng.randrange(1, 30))], max_tokens=20)
        assert own.usage.used == 0
        assert own.usage.free == own.pool.blocks - own.usage.remembered
        assert reuse or not own.usage.remembered
        assert own.kv_bytes == limit
        assert not (own._open or own.pool._tables or drafter._open or drafter._grown)
    own.pool.check_integrity()


def test_128_a_restored_prefix_is_restored_for_the_draft_model_too(transformer):
    target, own = transformer.checked(), transformer.checked()
    engine = toy_engine(target, ModelDrafter(own), depth=4, eos_ids=())
    prompt = [i * 7 % 32 for i in range(32)]
    first, again = [], []
    for run in (first, again):
        before = target.fed, own.fed
        result = engine.generate(prompt, max_tokens=20)
        run += [result.token_ids, result.stats.acceptance, target.fed - before[0], own.fed - before[1]]
    assert again[:2] == first[:2]
    assert again[1] == 1.0
    assert result.stats.reused == 16, "whole blocks, and never all of a prompt"
    assert [a - b for a, b in zip(first[2:], again[2:], strict=True)] == [16, 16], "neither model reads them again"
