"""A row's bits do not depend on what else was computed with it: the promise that speculation keeps its text by.

The reference reads one token at a time on one thread. Everything else, trees, chunks, batches, commits, other numbers
of threads, must give the same bits, for every weight format, memory format and instruction set that runs here.
"""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

_ext = pytest.importorskip("forerun.native._ext", reason="the native extension was not built")

from nets import KVS, Bench, Feed, Packed, config, here

FORMATS = _ext.FORMATS
GRID = [(isa, format, KVS[(i + j) % 3]) for i, isa in enumerate(here()) for j, format in enumerate(FORMATS)]
REST = [(isa, format, kv) for isa in here() for format in FORMATS for kv in KVS if (isa, format, kv) not in GRID]
THREADS = (1, 2, 3)


def in_turn(cases):
    """All cases with every number of threads; in the smoke grid a case has one number, and they take turns."""
    return [
        pytest.param(*case, threads, marks=[] if (i + i // 3) % 3 == j else pytest.mark.full)
        for i, case in enumerate(cases)
        for j, threads in enumerate(THREADS)
    ]


@pytest.fixture
def threads(request):
    before = _ext.threads()
    _ext.set_threads(request.param)
    yield request.param
    _ext.set_threads(before)


def tree(draw, bench, held, nodes, certain=0, seen=0):
    """A random tree of so many nodes after `certain` new tokens."""
    word = lambda: draw.randrange(bench.config.vocab_size)
    parents = [-1, *(draw.randrange(max(0, n - draw.choice((1, 2, 5))), n) for n in range(1, nodes))]
    return Feed(held, [word() for _ in range(certain)], [word() for _ in range(nodes)], parents[:nodes], seen)


def bench_for(isa, format, kv, seed, **changes):
    shape = config(random.Random(f"{format} {kv} {seed}"), format, **changes)
    return Bench(Packed(shape, format, seed), shape, isa, kv)


@pytest.mark.parametrize(
    ("isa", "format", "kv", "threads"),
    [*in_turn(GRID), *(pytest.param(*case, threads, marks=pytest.mark.full) for case in REST for threads in THREADS)],
    indirect=["threads"],
)
def test_rows_have_the_bits_of_plain_decoding(isa, format, kv, threads):
    for seed in range(3):
        decode(bench_for(isa, format, kv, seed), random.Random(seed))


@pytest.mark.parametrize(
    ("isa", "head_dim", "heads", "kv_heads", "threads"),
    in_turn((isa, *shape) for isa in here() for shape in ((64, 9, 3), (128, 4, 4), (64, 24, 1))),
    indirect=["threads"],
)
def test_heads_that_fill_a_tile_have_the_bits_of_plain_decoding(isa, head_dim, heads, kv_heads, threads):
    """AMX has attention of its own for heads of 64 and 128, and a group of more than 16 heads is cut into units."""
    shape = {"head_dim": head_dim, "heads": heads, "kv_heads": kv_heads, "layers": 2, "windows": (None, 21)}
    decode(bench_for(isa, "bf16", "bf16", 5, **shape), random.Random(5))


def decode(bench, draw, steps=5):
    """A few steps of a batch that comes and goes: chunks and random trees, each row checked, random paths committed."""
    running = [bench.sequence(160) for _ in range(draw.randrange(1, 6))]
    for _ in range(steps):
        chosen = [held for held in running if draw.random() < 0.8 and len(held.tokens) < 100]
        feeds = [
            tree(draw, bench, held, draw.choice((0, 1, 1, 2, 7, 16, 20)), draw.choice((0, 0, 1, 3, 17, 33)))
            for held in chosen
        ]
        feeds = [feed for feed in feeds if feed.certain or feed.tokens]
        if not feeds:
            continue
        before = [list(feed.held.tokens) for feed in feeds]
        rows, best, _ = bench.run(feeds)
        bench.check(feeds, rows, best, before)
        for feed in feeds:
            if feed.tokens and draw.random() < 0.8:
                node, path = draw.randrange(len(feed.tokens)), []
                while node >= 0:
                    path.append(node)
                    node = feed.parents[node]
                bench.commit(feed, path[::-1])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("head_dim", [16, 64])
def test_instruction_sets_agree(format, head_dim):
    """Not to the bit, but far closer than formats are to one another; integer products are the same everywhere."""
    rows = {}
    for isa in here():
        shape = {"head_dim": head_dim, "heads": 4, "kv_heads": 2, "layers": 1, "windows": (None,), "hidden_size": 128}
        bench = bench_for(isa, format, "bf16", 6, **shape)
        draw = random.Random(6)
        feed = tree(draw, bench, bench.sequence(160), 37, 33)
        rows[isa] = bench.run([feed])[0]
    reference = rows["portable"]
    for isa, found in rows.items():
        assert float(np.abs(found - reference).std()) < 0.01 * float(reference.std()), isa


@pytest.mark.parametrize(("format", "kv", "threads"), in_turn(product(FORMATS, KVS)), indirect=["threads"])
def test_a_tree_grown_level_by_level_has_the_bits_of_one_fed_at_once(format, kv, threads):
    draw = random.Random(1)
    bench = bench_for(here()[0], format, kv, 1)
    held = bench.sequence()
    whole = tree(draw, bench, held, 12, 21)
    for seen, upto in ((0, 1), (1, 4), (4, 5), (5, 12)):
        part = Feed(held, [] if seen else whole.certain, whole.tokens[:upto], whole.parents[:upto], seen)
        before = list(held.tokens)
        rows, best, _ = bench.run([part])
        bench.check([part], rows, best, [before])


@pytest.mark.parametrize(("isa", "format", "threads"), in_turn(product(here(), FORMATS)), indirect=["threads"])
def test_a_prompt_read_in_any_pieces_leaves_the_same_memory_and_states(isa, format, threads):
    """Tapped states of every token, and the rows after 300 of them, whatever the chunks were."""
    draw = random.Random(2)
    bench = bench_for(isa, format, "bf16", 2, layers=2, windows=(None, 21))
    prompt = [draw.randrange(bench.config.vocab_size) for _ in range(300)]
    told = []
    for sizes in ([1] * 300, [300], [64, 100, 17, 119], [16] * 18 + [12], [33] * 9 + [3]):
        held, states = bench.sequence(320), []
        for size in sizes:
            at = len(held.tokens)
            _, _, hidden = bench.run([Feed(held, prompt[at : at + size], [], [])])
            states.append(hidden)
        end = Feed(held, [], [5, 7, 9, 11], [-1, 0, 0, 1])
        rows, _, hidden = bench.run([end])
        told.append((np.concatenate(states).tobytes(), rows.tobytes(), hidden.tobytes()))
        bench._free += held.blocks
    assert [x[0] == told[0][0] for x in told] == [True] * len(told), "states of the prompt"
    assert [x[1:] == told[0][1:] for x in told] == [True] * len(told), "rows after it"


@pytest.mark.parametrize(("format", "threads"), in_turn(product(FORMATS)), indirect=["threads"])
def test_a_batch_has_the_bits_of_its_members_alone(format, threads):
    draw = random.Random(3)
    bench = bench_for(here()[0], format, "int8", 3)
    running = [bench.sequence(32) for _ in range(40)]
    for nodes in (0, 1, 1, 3):
        feeds = [tree(draw, bench, held, nodes, draw.choice((1, 4, 5)) if not nodes else 0) for held in running]
        before = [list(feed.held.tokens) for feed in feeds]
        rows, best, _ = bench.run(feeds)
        bench.check(feeds, rows, best, before)
        for feed in feeds:
            if nodes:
                bench.commit(feed, [0])


@pytest.mark.parametrize("threads", THREADS, indirect=True)
def test_where_blocks_lie_changes_nothing(threads):
    bench = bench_for(here()[0], "bf16", "bf16", 4)
    tokens = [(7 * i) % bench.config.vocab_size for i in range(60)]
    rows = []
    for _ in range(3):
        held = bench.sequence(64)
        rows.append(bench.run([Feed(held, tokens, [1, 2], [-1, 0])])[0].tobytes())
    assert len(set(rows)) == 1
