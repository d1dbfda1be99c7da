"""Drafters with trained heads keep the contract, whatever the head says; the toy's states are one-hot tokens."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from forerun.core.draft import Tree
from forerun.core.errors import SpecError
from forerun.core.noise import Noise, SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.costs.prices import FREE
from forerun.drafters.eagle import Eagle3Drafter, EagleDrafter
from forerun.drafters.medusa import MedusaDrafter
from forerun.drafters.mtp import MTPDrafter
from forerun.drafters.parallel import ParallelDrafter
from forerun.models.heads.plain import TorchMedusa, TorchRecurrent
from forerun.testing.conformance import check_drafter, toy_law
from forerun.testing.gate import measure
from forerun.testing.heads import random_config, random_head
from forerun.testing.tables import random_table
from forerun.testing.toy import ToyTarget
from forerun.trees.named import shape_of
from forerun.verify.reference import Reference

VOCAB = 12
CLASSES = {
    "eagle": EagleDrafter,
    "eagle3": Eagle3Drafter,
    "p-eagle": ParallelDrafter,
    "mtp": MTPDrafter,
    "medusa": MedusaDrafter,
}
KINDS = tuple(CLASSES)


def ends(vocab: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """One-hot embeddings, and an end that makes the toy's own law of one-hot states."""
    table = torch.stack([toy_law()([token])[:vocab] for token in range(vocab)]) if vocab == VOCAB else torch.eye(vocab)
    return torch.eye(vocab), table.T.float().contiguous()


def drafter(kind: str, vocab: int = VOCAB, kv_tokens: int = 1 << 12, draft_vocab: int | None = None, **options):
    config = random_config(kind, vocab, vocab, draft_vocab)
    head = random_head(config, seed=3)
    embedding, end = ends(vocab)
    runner = TorchMedusa(head, end) if kind == "medusa" else TorchRecurrent(head, embedding, end)
    asked = CLASSES[kind].Options(**options)
    return CLASSES[kind](runner, asked, vocab=vocab, layers=2, kv_tokens=kv_tokens, worth=asked.worth(FREE, 0.0))


def holds(made) -> int:
    return (
        len(made._latest) if isinstance(made, MedusaDrafter) else made._slots.pool.usage.used + len(made._slots._open)
    )


@pytest.mark.parametrize("law", ["foreseen", "chosen", "sampled", "distinct"])
@pytest.mark.parametrize("kind", KINDS)
def test_conformance(kind, law):
    made = drafter(kind, law=law, **({} if kind == "medusa" else {"chunk": 3}))
    tally = check_drafter(lambda: made, target=lambda: ToyTarget(toy_law(), VOCAB, layers=2), holds=lambda: holds(made))
    assert 0 < tally.accepted < tally.drafted


@pytest.mark.parametrize("kind", KINDS)
def test_conformance_with_few_words(kind):
    made = drafter(kind, draft_vocab=7)
    tally = check_drafter(lambda: made, target=lambda: ToyTarget(toy_law(), VOCAB, layers=2), holds=lambda: holds(made))
    assert tally.drafted > 0


@pytest.mark.parametrize(("kv_tokens", "window"), [(48, 0), (96, 0), (4096, 4), (64, 6)])
@pytest.mark.parametrize("kind", ["eagle3", "p-eagle", "mtp"])
def test_conformance_where_memory_is_short_or_a_window_wanted(kind, kv_tokens, window):
    made = drafter(kind, kv_tokens=kv_tokens, window=window, sinks=2, chunk=3)
    tally = check_drafter(lambda: made, target=lambda: ToyTarget(toy_law(), VOCAB, layers=2), holds=lambda: holds(made))
    assert tally.drafted > 0
    made._slots.pool.check_integrity()


PLANS = {
    "chain": Plan(2),
    "tree": Plan(2, nodes=3, width=2),
    "confident": Plan(2, nodes=4, width=2, confidence=0.4),
    "wide": Plan(1, width=3),
}


@pytest.mark.parametrize(
    ("kind", "plan", "law", "draft_vocab"),
    [
        pytest.param(*case, marks=[] if (i + i // 2 + i // 4) % 2 == 0 else pytest.mark.full)
        for i, case in enumerate(product(KINDS, PLANS, ("sampled", "distinct"), (None, 2)))
    ],
)
def test_the_law_is_not_bent(kind, plan, law, draft_vocab):
    """Every outcome of every draw of a real network over three words, and the verdicts on them: exact to rounding."""
    target = ToyTarget(toy_law(), 3, layers=2)
    target._law = lambda tokens: torch.zeros(3, dtype=torch.float64)

    def tree(noise: Noise) -> Tree:
        made = drafter(kind, 3, law=law, draft_vocab=draft_vocab)
        seq = Seq(0, [0, 1, 2], SamplingParams(temperature=1.0, seed=3), 64)
        target.begin(seq)
        made.begin(seq)
        target.reserve(seq, 8)
        made.read(target.score([Item(seq, 0, 2)], taps=made.taps))
        grown = made.draft([seq], PLANS[plan], noise).trees[0]
        made.end(seq)
        target.release(seq)
        return grown

    found = measure(Reference(), random_table(3, seed=2), tree)
    assert found.deviation < 1e-6
    assert found.accepted > 0.1


@pytest.mark.parametrize("law", ["foreseen", "chosen", "sampled", "distinct"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_static_tree_has_its_shape(kind, law):
    """Every node that the shape has is there, unless its parent ended the answer or a twin stands before it."""
    made = drafter(kind, law=law, tree="eagle-25")
    target = ToyTarget(toy_law(), VOCAB, layers=2)
    temperature = 0.0 if law == "chosen" else 1.0
    seq = Seq(0, [3, 1, 2], SamplingParams(temperature=temperature, seed=3), 64)
    target.begin(seq)
    made.begin(seq)
    target.reserve(seq, 40)
    made.read(target.score([Item(seq, 0, 2)], taps=made.taps))
    tree = made.draft([seq], Plan(5, nodes=25, width=4), SeededNoise([3])).trees[0]
    shape = shape_of("eagle-25")
    ranks: dict[int, tuple[int, ...]] = {0: ()}
    for node, parent in enumerate(tree.parents[1:], start=1):
        ranks[node] = (*ranks[parent], list(tree.parents[:node]).count(parent))
    paths = set(list(ranks.values())[1:])
    most = made.config.count if kind == "medusa" else 5
    assert paths <= set(shape.paths)
    if law in ("chosen", "distinct", "foreseen"):
        assert paths == {path for path in shape.paths if len(path) <= most}
    assert len(made._slots.pool._tables) == 1 if kind != "medusa" else True


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_takes_a_forward_a_level_and_no_more(kind, depth, monkeypatch):
    """The price of a draft is part of its contract: one forward in all where heads see all depths at once."""
    made = drafter(kind, law="chosen", min_prob=0.0)
    target = ToyTarget(toy_law(), VOCAB, layers=2)
    seqs = [Seq(i, [3, 1, 2 + i], SamplingParams(), 64) for i in range(2)]
    for seq in seqs:
        target.begin(seq)
        made.begin(seq)
        target.reserve(seq, 40)
    made.read(target.score([Item(seq, 0, 2) for seq in seqs], taps=made.taps))
    forward, calls = made._runner.forward, []
    monkeypatch.setattr(made._runner, "forward", lambda *args, **options: calls.append(1) or forward(*args, **options))
    draft = made.draft(seqs, Plan(depth, nodes=9, width=2), SeededNoise([3, 4]))
    assert [tree.depth for tree in draft.trees] == [min(depth, 3 if kind == "medusa" else 9)] * 2
    assert len(calls) == (1 if kind in ("p-eagle", "medusa") else depth)


@pytest.mark.parametrize("kind", KINDS)
def test_unlikely_guesses_are_left_out(kind):
    """By the head's own account: those that stay are those of the whole tree that are likely enough, and where a level
    takes a forward, under a parent that promises a level and a row: here of one step, so its likelihood squared."""
    found = {}
    for least in (0.0, 0.1):
        levels = {"level_rows": 3.0} if kind in ("eagle", "eagle3", "mtp") else {}
        made = drafter(kind, law="chosen", min_prob=least, **levels)
        target = ToyTarget(toy_law(), VOCAB, layers=2)
        seq = Seq(0, [3, 1, 2], SamplingParams(), 64)
        target.begin(seq)
        made.begin(seq)
        target.reserve(seq, 40)
        made.read(target.score([Item(seq, 0, 2)], taps=made.taps))
        (found[least],) = made.draft([seq], Plan(2, nodes=12, width=3, signals=True), SeededNoise([3])).trees
    whole, few = found[0.0], found[0.1]
    chances = {0: 1.0}
    for node in range(1, len(whole)):
        chances[node] = chances[whole.parents[node]] * whole.signals[node].confidence
    level = 0.3 if kind in ("eagle", "eagle3", "mtp") else 0.0  # three rows' worth, as asked for
    grown = (level + 0.1) ** 0.5 if level else 0.0
    stay = [n for n in chances if n and chances[n] >= 0.1 and (chances[whole.parents[n]] >= grown)]
    likely = {tuple(whole.tokens[n] for n in whole.path(node)) for node in stay}
    assert {tuple(few.tokens[n] for n in few.path(node)) for node in range(1, len(few))} == likely
    assert 0 < len(likely) < whole.drafted


@pytest.mark.parametrize(
    ("kind", "values"), [("eagle3", {"level_rows": -1}), ("p-eagle", {"window": -1}), ("medusa", {"min_prob": 2})]
)
def test_options_out_of_range_are_refused_as_a_head_s(kind, values):
    with pytest.raises(SpecError, match=f"^head {next(iter(values))} must be"):
        CLASSES[kind].Options(**values)
