"""Our decoder against transformers: same weights, same numbers, for every family and way of feeding."""

from __future__ import annotations

import pytest
import torch
from families import FAMILIES, hf_forward, seq, target, text

from forerun.core.draft import Tree
from forerun.core.rows import Rows
from forerun.core.work import Item

CLOSE = dict(rtol=1e-4, atol=1e-4)


def all_rows(rows: Rows) -> torch.Tensor:
    return torch.stack([rows.raw(0, node) for node in range(rows.items[0].seen, len(rows.items[0].nodes))])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("step", [1, 3, 5, 40])
def test_logits_equal_transformers_however_they_are_fed(family: str, step: int) -> None:
    tokens = text(40)
    want, states = hf_forward(family, tokens)
    ours = target(family)
    running = seq(tokens[:1])
    assert ours.begin(running) == 0
    for at in range(0, 40, step):
        chain = Tree.chain(tokens[at], tokens[at + 1 : at + step])
        rows = ours.score([Item(running, at, at, chain)], taps=(0, 1, 2))
        torch.testing.assert_close(all_rows(rows), want[at : at + step], **CLOSE)
        hidden = torch.cat([state[at : at + step] for state in states], -1)
        torch.testing.assert_close(rows.hidden, hidden, **CLOSE)
        ours.commit([running], [range(1, len(chain))])
        running.tokens = tokens[: at + step + 1]
    assert ours.held(running) == 40


@pytest.mark.parametrize("family", FAMILIES)
def test_each_node_of_a_tree_sees_its_own_path(family: str) -> None:
    tokens = text(20)
    tree = Tree(tuple(text(12, 1)), (-1, 0, 0, 1, 1, 2, 3, 6, 7, 0, 9, 5))
    ours = target(family)
    running = seq([*tokens, tree.tokens[0]])
    ours.begin(running)
    rows = ours.score([Item(running, 0, 20, tree)])
    for node in range(12):
        path = [tree.tokens[n] for n in (0, *tree.path(node))]
        torch.testing.assert_close(rows.raw(0, node), hf_forward(family, [*tokens, *path])[0][-1], **CLOSE)


def test_prompt_chunks_and_a_tree_in_one_forward_with_others() -> None:
    ours = target("mistral")
    a, b, c = seq(text(30, 1)), seq(text(9, 2)), seq(text(1, 3))
    for running in (a, b, c):
        ours.begin(running)
    tree = Tree((b.last, 5, 6, 7), (-1, 0, 0, 2))
    rows = ours.score([Item(a, 0, 17), Item(b, 0, 8, tree), Item(c, 0, 0, Tree.root(c.last))])
    torch.testing.assert_close(rows.raw(1, 3), hf_forward("mistral", [*b.tokens, 6, 7])[0][-1], **CLOSE)
    torch.testing.assert_close(rows.raw(2, 0), hf_forward("mistral", c.tokens)[0][-1], **CLOSE)
    rows = ours.score([Item(a, 17, 29, Tree.root(a.last))])
    torch.testing.assert_close(rows.raw(0, 0), hf_forward("mistral", a.tokens)[0][-1], **CLOSE)
