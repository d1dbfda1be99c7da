"""Failures from the field about a target's memory, masks and positions; numbers are those of docs/failures.md."""

import random

import pytest
import torch

from forerun.cache.view import Part
from forerun.control.fixed import Fixed
from forerun.core.draft import Tree
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.testing.engines import toy_engine
from forerun.testing.scripted import always

CLOSE = dict(rtol=1e-4, atol=1e-4)


def fed(target, tokens, groups, cached=0):
    """The row after every token but the cached ones, tokens being fed in groups of these sizes."""
    seq, rows = Seq(0, tokens[: cached + 1], SamplingParams(), 256), []
    at = target.begin(seq)
    assert at == 0
    if cached:
        target.score([Item(seq, 0, cached)])
    for size in groups:
        at, stop = len(seq) - 1, len(seq) - 1 + size
        chain = Tree.chain(tokens[at], tokens[at + 1 : stop])
        found = target.score([Item(seq, at, at, chain)])
        rows += [found.raw(0, node) for node in range(size)]
        target.commit([seq], [range(1, size)])
        seq.tokens = tokens[: stop + 1]
    return torch.stack(rows)


@pytest.mark.parametrize("count", [2, 3, 8])
def test_5_a_mask_over_a_cached_prefix_is_shifted_by_its_length(transformer, count):
    tokens = [7, 3, 9, 1, 5, 2, 8, 4, 6, 30, 11, 12, 13, 14]
    together = fed(transformer.target(), tokens, [count], cached=5)
    singly = fed(transformer.target(), tokens, [1] * count, cached=5)
    torch.testing.assert_close(together, singly, **CLOSE)
    assert together.argmax(-1).tolist() == singly.argmax(-1).tolist()


def test_74_a_window_holds_whatever_the_number_of_tokens_fed(windowed, transformer):
    rng = random.Random(0)
    tokens = [rng.randrange(32) for _ in range(21)]
    singly = fed(windowed.target(), tokens, [1] * 20)
    for groups in ([3] * 6 + [2], [5] * 4):
        torch.testing.assert_close(fed(windowed.target(), tokens, groups), singly, **CLOSE)
    assert torch.allclose(singly[7], transformer.row(tokens[:8]), **CLOSE), "the same weights"
    assert not torch.allclose(singly[19], transformer.row(tokens[:20]), atol=0.01), "the window matters"


@pytest.mark.parametrize("count", [1, 3, 5])
def test_74_what_is_read_is_bounded_by_the_window(windowed, count):
    """All keys are kept, so that nothing is lost where a guess is refused; window + count - 1 of them are read."""
    if windowed.runtime == "native":
        pytest.skip("what torch reads is a view; the native runtime has none")
    target, seq = windowed.target(), Seq(0, list(range(20)), SamplingParams(), 256)
    target.begin(seq)
    target.score([Item(seq, 0, 19, Tree.chain(19, range(count - 1)))])
    part = Part(target.pool.table(seq), 19, 0, Tree.chain(19, range(count - 1)))
    (span,) = target.runner.viewer.view([part]).spans
    read = span.reads[8].slots
    assert read.stop - read.start == 8 + count - 1


def fragmented(transformer, **options):
    """A target of 96 one-token blocks of which every second belongs to somebody who stays."""
    target = transformer.checked(block_size=1, kv_tokens=96, max_len=96, **options)
    owners = {}
    for i in range(96):
        seq = Seq(1000 + i, [i % 32], SamplingParams(), 96)
        target.begin(seq)
        target.score([Item(seq, 0, 0, Tree.root(seq.last))])
        target.commit([seq], [[]])
        owners[target.pool.table(seq).blocks[0]] = seq
    for block in range(0, 96, 2):
        target.release(owners[block])
    return target


def beside_a_wrong_one(tree):
    """The chain of these tokens under a root, behind a sibling that is wrong: what stands has to be moved."""
    root, first, *rest = tree
    return Tree((root, (first + 1) % 32, first, *rest), (-1, 0, 0, *range(2, 2 + len(rest))))


@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("padded", [False, True])
def test_127_slots_are_looked_up_not_counted_on(transformer, padded, shape):
    prefix, prompts = [9, 8, 7, 6, 5, 4], ([9, 8, 7, 6, 5, 4, 3, 1], [9, 8, 7, 6, 5, 4, 30])
    cold = [toy_engine(transformer.target(), eos_ids=()).generate(p, max_tokens=12).token_ids for p in prompts]
    target = fragmented(transformer)
    transformer.pad(target, padded)

    def guess(seq):
        chain = [*cold[seq.id][len(seq.output) :][:2], 31]
        return chain if shape == "chain" or seq.room < 3 else beside_a_wrong_one([seq.last, *chain[:2]])

    engine = toy_engine(target, guess, controller=Fixed(Plan(3, nodes=3, width=2)), eos_ids=())
    requests = [engine.add(prompts[0], max_tokens=12)]
    engine.step()
    requests.append(engine.add(prompts[1], max_tokens=12))
    both = 0
    while engine.busy and not all(map(engine.finished, requests)):
        engine.step()
        target.pool.check_integrity()
        running = [target.pool.table(seq).blocks for seq in engine._scheduler.running]
        if len(running) == 2:
            both += 1
            assert set(running[0]) & set(running[1]) == set(running[0][: len(prefix)])
            assert all(b != a + 1 for a, b in zip(running[1], running[1][1:], strict=False))
    assert both >= 2
    results = [engine.collect(request) for request in requests]
    assert [result.token_ids for result in results] == cold
    assert results[1].stats.reused == len(prefix)
    assert all(0 < result.stats.accepted < result.stats.drafted for result in results)


@pytest.mark.parametrize("reuse", [True, False])
def test_160_what_is_remembered_is_visible_and_bounded(transformer, reuse):
    target = transformer.target(kv_tokens=4096, reuse=reuse)
    limit = target.kv_bytes
    assert limit == 4096 * target.runner.facts.token_bytes
    engine = toy_engine(target, always([1, 2]), depth=2, eos_ids=())
    sizes = []
    for i in range(200):
        engine.generate([i % 32, i // 32, *[(i * j) % 32 for j in range(40)]], max_tokens=3)
        usage = target.usage
        assert (usage.used, usage.used + usage.remembered + usage.free) == (0, 256)
        assert target.kv_bytes == limit
        sizes.append(usage.remembered)
    target.pool.check_integrity()
    assert len(target.pool._found) == sizes[-1]
    if not reuse:
        assert max(sizes) == 0
    else:
        assert sizes[0] > 0
        assert max(sizes) <= 256
        assert max(sizes[100:]) <= max(sizes[:150]), "it stops growing"
