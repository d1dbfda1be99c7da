"""The native runtime against the torch network with the same weights: every family, every way of feeding.

In f32 the two differ by the order of sums alone; the other formats are held to the values that they stand for.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "models"))
_ext = pytest.importorskip("forerun.native._ext", reason="the native extension was not built")

from families import FAMILIES, VOCAB, network, packed, seq, target, text
from nets import here

from forerun.core.draft import Tree
from forerun.core.work import Item
from forerun.testing.conformance import check_target

CLOSE = dict(rtol=2e-5, atol=2e-5)
PLAIN = [name for name in FAMILIES if "-" not in name]
"""Each family once."""


def rows_of(rows, b=0):
    item = rows.items[b]
    return torch.stack([rows.raw(b, node) for node in range(item.seen, len(item.nodes))])


def script(ours, taps=()):
    """Rows and states of a few steps: a prompt in chunks, a tree, a commit, a batch with another sequence."""
    ours.pool.remember = False
    a, b = seq(text(40), 0), seq(text(9, 2), 1)
    for each in (a, b):
        ours.begin(each)
    ours.score([Item(a, 0, 17)])
    tree = Tree((a.last, *text(11, 1)), (-1, 0, 0, 1, 1, 2, 3, 6, 7, 0, 9, 5))
    first = ours.score([Item(a, 17, 39, tree), Item(b, 0, 8, Tree.root(b.last))], taps=taps)
    told = [rows_of(first), rows_of(first, 1), first.hidden]
    ours.commit([a, b], [[2, 5, 11], []])
    a.tokens.extend([*(tree.tokens[n] for n in (2, 5, 11)), 7])
    b.tokens.append(9)
    second = ours.score([Item(b, 9, 9, Tree.chain(9, [4, 4])), Item(a, 43, 43, Tree.root(7))], taps=taps)
    ours.release(a)
    ours.release(b)
    return [*told, rows_of(second), rows_of(second, 1), second.hidden]


@pytest.mark.parametrize("isa", here())
@pytest.mark.parametrize("family", FAMILIES)
def test_f32_says_what_torch_says(family, isa, monkeypatch):
    monkeypatch.setenv("FORERUN_ISA", isa)
    taps = (1, 0, 2)
    for ours, theirs in zip(script(target(family, "native"), taps), script(target(family), taps), strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.mark.parametrize("family", PLAIN)
@pytest.mark.parametrize(
    ("weights", "kv", "off"),
    [("f32", "bf16", 0.02), ("f32", "int8", 0.05), ("bf16", "bf16", 0.05), ("int8", "f32", 0.2)],
)
def test_other_formats_stay_near(family, weights, kv, off):
    """By the share of the logits' spread that they are off; these networks double every error from layer to layer."""
    for ours, theirs in zip(script(target(family, "native", weights, kv)), script(target(family)), strict=True):
        if ours is not None:
            assert float((ours - theirs).std()) < off * float(theirs.std())


@pytest.mark.parametrize("kv", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("weights", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("family", PLAIN)
def test_the_target_keeps_the_contract_to_the_bit(family, weights, kv):
    """`check_target` with no tolerance at all: rows are those of one token at a time."""
    check_target(lambda: target(family, "native", weights, kv, kv_tokens=None), tolerance=0.0)


def test_the_first_layers_alone(monkeypatch):
    ours, theirs = target("llama", "native").shallow(1), target("llama").shallow(1)
    assert ours.spec.layers == 1
    for got, want in zip(script(ours), script(theirs), strict=True):
        assert (got is None and want is None) or torch.allclose(got, want, **CLOSE)
    assert ours.runner.packed is packed("llama", "f32"), "weights are shared"


def test_padded_ids_have_no_rows():
    ours, theirs = target("llama", "native", vocab_size=50), network("llama")
    each = seq([4, 5])
    ours.begin(each)
    rows = ours.score([Item(each, 0, 1, Tree.root(5))])
    assert rows.raw(0, 0).shape == (50,)
    assert rows.argmax(0, 0) == int(rows.raw(0, 0).argmax())
    assert theirs.config.vocab_size == VOCAB


def test_taps_may_change_between_forwards():
    ours, theirs = target("qwen2", "native"), target("qwen2")
    for taps in ((2,), (), (0, 0), (2, 1)):
        for got, want in zip(script(ours, taps), script(theirs, taps), strict=True):
            assert (got is None) == (want is None)
            assert got is None or torch.allclose(got, want, **CLOSE)
