"""Masks against their definition, and the memory's moves."""

from __future__ import annotations

import random

import pytest
import torch

from forerun.cache.kv import KVMemory, KVShape
from forerun.cache.pool import Table
from forerun.cache.view import Part, allowed, ancestors
from forerun.core.draft import Tree


def random_tree(draw: random.Random, nodes: int) -> Tree:
    return Tree(tuple(range(nodes)), (-1, *(draw.randrange(node) for node in range(1, nodes))))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("window", [None, 1, 3, 8])
def test_allowed_is_held_path_and_self_within_the_window(seed: int, window: int | None) -> None:
    draw = random.Random(seed)
    tree = random_tree(draw, draw.randrange(1, 9)) if seed % 4 else Tree((), ())
    seen = draw.randrange(len(tree) + 1)
    part = Part(Table(), draw.randrange(7), 0 if seen else draw.randrange(1, 7), tree, seen)
    positions = [*range(part.stop), *(part.stop + depth for depth in tree.depths())]
    mask = allowed(part, window)
    assert mask.shape == (part.end - part.first, part.end)
    for row, query in enumerate(range(part.first, part.end)):
        path = {part.stop + node for node in (0, *tree.path(query - part.stop))} if query >= part.stop else set()
        for key in range(part.end):
            sees = key <= query if query < part.stop else key < part.stop or key in path
            near = window is None or positions[query] - positions[key] < window
            assert mask[row, key] == (sees and near)


def test_ancestors_of_a_chain_are_all_before() -> None:
    assert torch.equal(ancestors((-1, 0, 1, 2)), torch.ones(4, 4).tril().bool())


def test_moves_read_before_they_write() -> None:
    memory = KVMemory(KVShape(2, 1, 3, torch.float32), 8, "cpu")
    for layer in memory.layer:
        layer.copy_(torch.arange(8.0)[:, None].expand(2, 1, 8, 3))
    memory.move([3, 2, 5], [2, 3, 4])
    for layer in memory.layer:
        assert layer[1, 0, :, 2].tolist() == [0, 1, 3, 2, 5, 5, 6, 7]
    memory.copy_blocks([(1, 0)], 4)
    assert memory.layer[1][0, 0, :, 0].tolist() == [5, 5, 6, 7, 5, 5, 6, 7]
    assert memory.bytes == 2 * 2 * 3 * 8 * 4
