"""The torch target's bookkeeping: whatever was fed, shared, moved or forgotten, rows equal a fresh forward's."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch
from families import VOCAB, hf_forward, network, seq, target, text

from forerun.core.draft import Tree
from forerun.core.errors import BrokenInvariant, CapacityError, SpecError
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.targets.load import usable_device
from forerun.targets.paged import PagedTarget

CLOSE = dict(rtol=1e-4, atol=1e-4)


@cache
def last_row(family: str, tokens: tuple[int, ...]) -> torch.Tensor:
    return hf_forward(family, list(tokens))[0][-1]


def check(family: str, item: Item, rows_of: int, rows: object) -> None:
    """Every fresh row of the item equals the last row of its path fed without a cache."""
    for node in range(item.seen, len(item.nodes)):
        path = [item.nodes.tokens[n] for n in (0, *item.nodes.path(node))]
        want = last_row(family, (*item.seq.tokens[: item.stop], *path))
        torch.testing.assert_close(rows.raw(rows_of, node), want, **CLOSE)  # type: ignore[attr-defined]


def random_tree(draw: random.Random, root: int, nodes: int) -> Tree:
    parents = (-1, *(draw.randrange(max(0, n - 4), n) for n in range(1, nodes)))
    return Tree((root, *(draw.randrange(VOCAB) for _ in range(1, nodes))), parents)


def follow(draw: random.Random, tree: Tree) -> list[int]:
    return tree.path(draw.randrange(len(tree)))


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3", "gemma3"])
@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("seed", range(4))
def test_random_use_equals_fresh_forwards(family: str, block_size: int, seed: int) -> None:
    draw = random.Random(seed)
    ours = target(family, kv_tokens=160, block_size=block_size, reuse=bool(seed % 4), max_len=None)
    if seed % 2:  # as on an accelerator: a batch is one padded span
        object.__setattr__(ours.runner.viewer, "padded", True)
    prompts = [text(20, 1), text(20, 1)[:13] + text(5, 2), text(3, 3)]
    running: list[Seq] = []
    for _ in range(16):
        if len(running) < 3 and draw.random() < 0.6:
            new = seq([*draw.choice(prompts), draw.randrange(3)])
            ours.begin(new)
            running.append(new)
        work = []
        for each in running:
            held, known = ours.held(each), len(each) - 1
            stop = draw.randrange(held, known + 1)
            tree = random_tree(draw, each.last, draw.randrange(1, 8)) if stop == known else None
            if (tree or stop > held) and ours.reserve(each, stop - held + (len(tree) if tree else 0)):
                work.append(Item(each, held, stop, tree))
        if not work:
            while running:
                ours.release(running.pop())
            continue
        rows = ours.score(work)
        guessed = [item for item in work if item.tree]
        for b, item in enumerate(work):
            check(family, item, b, rows)
        paths = [follow(draw, item.nodes) for item in guessed]
        ours.commit([item.seq for item in guessed], paths)
        for item, path in zip(guessed, paths, strict=True):
            item.seq.tokens.extend([*(item.nodes.tokens[n] for n in path), draw.randrange(VOCAB)])
            assert ours.held(item.seq) == len(item.seq) - 1
        for each in running:
            if draw.random() < 0.15:
                ours.truncate(each, draw.randrange(ours.held(each) + 1))
        if draw.random() < 0.2 or any(len(each) > 60 for each in running):
            ours.release(running.pop(draw.randrange(len(running))))
        ours.pool.check_integrity()
    for each in running:
        ours.release(each)
    ours.pool.check_integrity()
    assert ours.usage.used == 0


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_kept_nodes_grow_level_by_level(family: str) -> None:
    ours, prompt = target(family), seq(text(20))
    ours.begin(prompt)
    levels = [1, 3, 6, 8]
    full = Tree((prompt.last, 4, 5, 6, 7, 8, 9, 10), (-1, 0, 0, 1, 2, 1, 4, 3))
    held, seen = 0, 0
    for size in levels:
        tree = Tree(full.tokens[:size], full.parents[:size])
        item = Item(prompt, held, 19, tree, seen)
        rows = ours.score([item], keep=True)
        check(family, item, 0, rows)
        held, seen = 19, size
        assert ours.held(prompt) == 19
    ours.commit([prompt], [[1, 3, 7]])
    prompt.tokens.extend([4, 6, 10, 11])
    assert ours.held(prompt) == 23
    item = Item(prompt, 23, 23, Tree.root(11))
    check(family, item, 0, ours.score([item]))


def test_a_path_is_held_as_far_as_it_was_fed() -> None:
    ours, prompt = target("llama"), seq(text(5))
    ours.begin(prompt)
    ours.score([Item(prompt, 0, 4, Tree.chain(prompt.last, [7, 8]))], keep=True)
    ours.commit([prompt], [[1, 2, 3, 4]])
    assert ours.held(prompt) == 7
    ours.commit([prompt], [[]])  # nothing was fed since
    assert ours.held(prompt) == 7


def test_prompts_share_their_beginning_and_get_the_same_rows() -> None:
    ours, tokens = target("llama"), text(50)
    first = seq(tokens)
    assert ours.begin(first) == 0
    cold = ours.score([Item(first, 0, 49, Tree.root(tokens[-1]))]).raw(0, 0)
    ours.commit([first], [[]])
    second = seq(tokens)
    assert ours.begin(second) == 48
    warm = ours.score([Item(second, 48, 49, Tree.root(tokens[-1]))]).raw(0, 0)
    torch.testing.assert_close(warm, cold, **CLOSE)
    ours.release(first)
    ours.release(second)
    assert ours.usage.used == 0 and ours.usage.remembered == 3
    third = seq(tokens)
    assert ours.begin(third) == 48
    ours.truncate(third, 20)
    check("llama", item := Item(third, 20, 49, Tree.root(tokens[-1])), 0, ours.score([item]))


def test_work_with_nothing_to_feed_is_no_fault() -> None:
    ours, a, b = target("llama"), seq(text(5)), seq(text(6, 1))
    ours.begin(a)
    ours.begin(b)
    assert ours.score([Item(a, 0, 0)]).items
    item = Item(b, 0, 5, Tree.root(b.last))
    check("llama", item, 1, ours.score([Item(a, 0, 0), item]))


def test_without_reuse_nothing_outlives_a_sequence() -> None:
    ours = target("llama", reuse=False)
    for _ in range(3):
        each = seq(text(50))
        assert ours.begin(each) == 0
        ours.score([Item(each, 0, 49, Tree.chain(each.last, [1, 2, 3]))])
        ours.release(each)
        assert ours.usage.used == ours.usage.remembered == 0


def test_a_sequence_comes_back_after_preemption() -> None:
    ours, each = target("qwen2", kv_tokens=64), seq(text(40))
    ours.begin(each)
    ours.score([Item(each, 0, 39, Tree.root(each.last))])
    ours.commit([each], [[]])
    ours.release(each)
    other = seq(text(60, 5))
    ours.begin(other)
    ours.score([Item(other, 0, 59)])
    ours.release(other)
    held = ours.begin(each)
    check("qwen2", item := Item(each, held, 39, Tree.root(each.last)), 0, ours.score([item]))


def test_reserve_is_all_or_nothing_and_unused_room_comes_back() -> None:
    ours = target("llama", kv_tokens=64)
    a, b = seq(text(20)), seq(text(20, 1))
    ours.begin(a)
    ours.begin(b)
    assert ours.reserve(a, 40) and not ours.reserve(b, 30) and ours.reserve(b, 16)
    ours.score([Item(a, 0, 19, Tree.root(a.last))])
    ours.commit([a], [[]])
    assert ours.reserve(b, 32)
    with pytest.raises(CapacityError, match="kv_tokens"):
        ours.score([Item(a, 20, 20, Tree.chain(a.last, list(range(30))))])
    ours.pool.check_integrity()


def test_rows_stop_at_the_real_vocabulary() -> None:
    ours, each = target("llama", vocab_size=90), seq([4, 5])
    ours.begin(each)
    assert ours.score([Item(each, 0, 1, Tree.root(5))]).raw(0, 0).shape == (90,)
    assert ours.spec.vocab_size == 90


def test_shallow_is_the_model_without_its_later_layers() -> None:
    ours = target("llama")
    low = ours.shallow(1)
    assert low.spec.layers == 1 and low.kv_bytes * 2 == ours.kv_bytes
    each = seq(text(9))
    low.begin(each)
    row = low.score([Item(each, 0, 8, Tree.root(each.last))]).raw(0, 0)
    net, state = network("llama"), hf_forward("llama", each.tokens)[1][1][-1]
    normed = torch.nn.functional.rms_norm(state, state.shape, net.norm, net.config.norm_eps)
    from families import hf_model

    torch.testing.assert_close(row, hf_model("llama").lm_head.weight.detach() @ normed, **CLOSE)
    with pytest.raises(SpecError, match=r"allowed 1\.\.1"):
        ours.shallow(2)


def test_faults_of_callers_are_named() -> None:
    ours, each = target("llama", max_len=32), seq(text(20))
    with pytest.raises(BrokenInvariant, match="begin it first"):
        ours.held(each)
    ours.begin(each)
    with pytest.raises(BrokenInvariant, match="0 tokens held"):
        ours.score([Item(each, 3, 19)])
    with pytest.raises(CapacityError, match="context of 32"):
        ours.score([Item(each, 0, 19, Tree.chain(each.last, list(range(13))))])
    with pytest.raises(BrokenInvariant, match="0 nodes held"):
        ours.score([Item(each, 0, 0, Tree.chain(each.last, [1, 2]), 2)], keep=True)
    with pytest.raises(BrokenInvariant, match="cut to 5"):
        ours.truncate(each, 5)


def test_impossible_sizes_and_devices_are_refused() -> None:
    for options, error, words in (
        ({"kv_tokens": 8}, CapacityError, "at least 16"),
        ({"kv_tokens": 64, "max_len": 128}, CapacityError, "cannot hold one sequence"),
        ({"max_len": 1000}, SpecError, "allowed 1..256"),
        ({"vocab_size": 98}, SpecError, "allowed 1..97"),
    ):
        with pytest.raises(error, match=words):
            target("llama", **options)
    with pytest.raises(SpecError, match=r"tap 3 is not a layer.*allowed 0\.\.2"):
        target("llama").score([], taps=(1, 3))
    with pytest.raises(SpecError, match="not available"):
        usable_device("hpu:9")
    assert isinstance(target("llama", kv_tokens=None), PagedTarget)
