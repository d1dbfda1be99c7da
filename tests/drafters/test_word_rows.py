"""Rows over few words say what plain rows say of the same logits spread over all words."""

from __future__ import annotations

import pytest
import torch

from forerun.core.draft import Tree
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.rows import NEVER, Rows
from forerun.core.seq import Seq
from forerun.core.vocabulary import PLAIN
from forerun.core.work import Item
from forerun.drafters.marginal import MarginalRows
from forerun.drafters.word_rows import WordRows

VOCAB = 40
WORDS = torch.tensor([1, 2, 5, 8, 13, 21, 30, 34, 39])
ASKS = (
    SamplingParams(),
    SamplingParams(temperature=0.7, seed=1),
    SamplingParams(temperature=1.1, top_k=4, seed=2),
    SamplingParams(temperature=0.9, top_p=0.6, seed=3),
    SamplingParams(temperature=0.9, repetition_penalty=1.4, logit_bias={5: 2.0, 6: 9.0}, seed=4),
)


def both(ask: SamplingParams, best: bool):
    seq = Seq(0, [3, 5, 8], ask, 64)
    tree = Tree((8, 13, 2, 30), (-1, 0, 0, 1))
    item = Item(seq, 2, 2, tree)
    logits = torch.randn(4, len(WORDS), generator=torch.Generator().manual_seed(7))
    spread = torch.full((4, VOCAB), NEVER).index_copy_(1, WORDS, logits)
    first = logits.argmax(-1).tolist() if best else None
    return WordRows([item], logits, WORDS, VOCAB, first, PLAIN), Rows([item], spread, VOCAB)


@pytest.mark.parametrize("best", [True, False])
@pytest.mark.parametrize("ask", ASKS, ids=range(len(ASKS)))
def test_few_words_are_rows_over_all_words(ask, best):
    few, all_words = both(ask, best)
    for node in range(4):
        assert few.argmax(0, node) == all_words.argmax(0, node)
        assert torch.equal(few.raw(0, node), all_words.raw(0, node))
        ids, logs = few.likeliest(0, node, 5)
        want_ids, want_logs = all_words.likeliest(0, node, 5)
        assert ids == want_ids
        assert logs == pytest.approx(want_logs, abs=1e-5)
        torch.testing.assert_close(few.probs(0, node), all_words.probs(0, node))
        if not ask.greedy:
            noise = SeededNoise([9])
            mine, theirs = few.support(0, node), all_words.support(0, node)
            left = theirs.weights > 0
            ids = torch.arange(VOCAB)[left] if theirs.ids is None else theirs.ids
            if mine.ids is not None:
                assert mine.ids.tolist() == ids.tolist()
            assert few.pick(0, node, noise) == all_words.pick(0, node, noise)


@pytest.mark.parametrize("words", [WORDS, None])
def test_marginals_depend_on_depth_alone(words):
    size = len(WORDS) if words is not None else VOCAB
    seqs = [Seq(i, [3, 5, 8], SamplingParams(), 64) for i in range(2)]
    trees = [Tree((8, 13, 2, 30), (-1, 0, 0, 1)), Tree((8, 13, 1), (-1, 0, 1))]
    items = [Item(seq, 2, 2, tree) for seq, tree in zip(seqs, trees, strict=True)]
    logits = torch.randn(2, 3, size, generator=torch.Generator().manual_seed(1))
    rows = MarginalRows(items, logits, words, VOCAB, PLAIN)
    to = WORDS.tolist() if words is not None else range(VOCAB)
    for b, tree in enumerate(trees):
        for node, depth in enumerate(tree.depths()):
            assert rows.argmax(b, node) == to[int(logits[b, depth].argmax())]
            assert rows.likeliest(b, node, 1)[0] == [rows.argmax(b, node)]


@pytest.mark.parametrize("ask", ASKS, ids=range(len(ASKS)))
def test_words_of_the_target_s_padding_are_never_guessed(ask):
    """Ids past the tokenizer's, which a table padded to a round size has and a head may name."""
    few, _ = both(ask, True)
    logits = torch.cat([few._logits, torch.full((4, 2), 50.0)], 1)
    padded = torch.cat([WORDS, torch.tensor([VOCAB, VOCAB + 3])])
    best = logits.argmax(-1).tolist()
    rows = WordRows(few.items, logits, padded, VOCAB, best, PLAIN)
    for node in range(4):
        assert rows.argmax(0, node) == few.argmax(0, node)
        assert rows.likeliest(0, node, 11) == few.likeliest(0, node, 11)
        torch.testing.assert_close(rows.raw(0, node), few.raw(0, node))
        torch.testing.assert_close(rows.probs(0, node), few.probs(0, node))
    marginal = MarginalRows(few.items, logits[None], padded, VOCAB, PLAIN)
    assert marginal.raw(0, 0).shape == (VOCAB,)
    assert marginal.argmax(0, 0) < VOCAB
