"""Drawn trees: the laws they declare, enumerated together with the verifiers that judge them."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from forerun.core.draft import Tree
from forerun.core.noise import Noise, SeededNoise, hashed, paces, target_slot
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.seq import Seq
from forerun.core.vocabulary import PLAIN, shape
from forerun.drafters.growth import Growth
from forerun.drafters.marginal import grow_over
from forerun.drafters.model import ModelDrafter, ModelOptions
from forerun.testing.gate import measure
from forerun.testing.tables import random_table
from forerun.testing.toy import ToyTarget, table_law
from forerun.trees.shape import Shape
from forerun.verify.reference import Reference

DRAWN = SamplingParams(temperature=1.0, seed=3)


def grown(law: str, plan: Plan, vocab: int = 3, seed: int = 1, zeros: float = 0.0, temperature: float = 1.0):
    """A fresh tree of a table model under the prompt (0,), drawn with the given noise."""
    model = ToyTarget(table_law(vocab, seed, order=2, zeros=zeros), vocab)

    def draw(noise: Noise) -> Tree:
        ask = replace(DRAWN, temperature=temperature)
        drafter, seq = ModelDrafter(model, ModelOptions(law=law)), Seq(0, [0], ask, 64)
        drafter.begin(seq)
        tree = drafter.draft([seq], plan, noise).trees[0]
        drafter.end(seq)
        return tree

    return draw


@pytest.mark.parametrize("law", ["sampled", "distinct"])
@pytest.mark.parametrize(
    "plan",
    [Plan(2), Plan(2, nodes=3, width=2), Plan(2, nodes=4, width=2, confidence=0.4), Plan(1, width=3)],
    ids=["chain", "tree", "confident", "wide"],
)
def test_the_law_is_not_bent(law, plan):
    found = measure(Reference(), random_table(3, seed=2), grown(law, plan, zeros=0.2))
    assert found.deviation < 1e-12
    assert found.accepted > 0.3


@pytest.mark.parametrize("law", ["sampled", "distinct"])
def test_q_is_the_drafter_s_own_row(law):
    tree = grown(law, Plan(3, nodes=9, width=2), vocab=6)(SeededNoise([7]))
    tree.check()
    assert tree.law == law
    assert tree.drafted == (8 if law == "sampled" else 9), "a twin gets no children of its own"
    model = table_law(6, 1, order=2)
    for node, below in enumerate(tree.children()):
        assert (node in tree.q) == bool(below)
        if below:
            path = [tree.tokens[n] for n in tree.path(node)]
            assert torch.allclose(tree.q[node], torch.softmax(model([0, *path]), -1))
        if law == "distinct":
            tokens = [tree.tokens[child] for child in below]
            assert len(set(tokens)) == len(tokens)


def test_few_nodes_still_reach_the_plan_s_depth():
    tree = grown("distinct", Plan(4, nodes=8, width=4), vocab=6)(SeededNoise([1]))
    assert max(tree.depths()) == 4
    assert tree.drafted == 8


def test_a_distinct_draw_ends_with_the_support():
    ask = SamplingParams(temperature=1.0, top_k=2, seed=0)
    drafter = ModelDrafter(ToyTarget(table_law(6, 1), 6), ModelOptions(law="distinct"))
    seq = Seq(0, [0], ask, 64)
    drafter.begin(seq)
    tree = drafter.draft([seq], Plan(1, width=5), SeededNoise([0])).trees[0]
    assert tree.drafted == 2


@pytest.mark.parametrize("law", ["sampled", "distinct"])
def test_greedy_requests_get_chosen_trees(law):
    drafter = ModelDrafter(ToyTarget(table_law(6, 1), 6), ModelOptions(law=law))
    seq = Seq(0, [0], SamplingParams(), 64)
    drafter.begin(seq)
    tree = drafter.draft([seq], Plan(2, nodes=5, width=2), SeededNoise([0])).trees[0]
    assert tree.law == "chosen"
    assert drafter.laws == {"chosen", law}
    assert tree.drafted == 5


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("law", ["chosen", "foreseen", "sampled", "distinct"])
def test_signals_are_the_model_s_own_at_temperature_1_and_change_nothing(law, temperature):
    plan = Plan(3, nodes=8, width=2)
    draws = [grown(law, p, vocab=6, temperature=temperature) for p in (plan, replace(plan, signals=True))]
    quiet, told = (draw(SeededNoise([7])) for draw in draws)
    assert (quiet.tokens, quiet.parents, quiet.law) == (told.tokens, told.parents, told.law)
    assert not quiet.signals
    assert set(told.signals) == set(range(1, len(told)))
    model = table_law(6, 1, order=2)
    for node, signal in told.signals.items():
        path = [told.tokens[n] for n in told.path(told.parents[node])]
        row = torch.softmax(model([0, *path]).double(), -1)
        assert signal.confidence == pytest.approx(float(row[told.tokens[node]]), rel=1e-5)
        assert signal.entropy == pytest.approx(float(-(row * row.log()).sum()), rel=1e-5)
    if told.drawn:  # what was drawn from is another row, unless the request's temperature is 1
        same = torch.allclose(told.q[0], torch.softmax(model([0]), -1))
        assert same == (temperature == 1.0)
    kept = told.keep(lambda node: node != 1)
    assert [kept.signals[n].confidence for n in range(1, len(kept))] == [
        told.signals[n].confidence for n in range(1, len(told)) if 1 not in told.path(n)
    ]


@pytest.mark.parametrize(
    "filters",
    [{}, {"temperature": 0.6}, {"top_k": 4}, {"top_p": 0.8}, {"min_p": 0.1}],
    ids=lambda filters: str(filters),
)
def test_foreseen_children_are_the_first_of_the_target_s_own_race(filters):
    """Of a drafter that is the target: what it draws comes first, then who came next, each as likely as its pace."""
    ask, law = replace(DRAWN, **filters), table_law(9, 1, order=2)
    for seed in range(20):
        drafter, seq = ModelDrafter(ToyTarget(law, 9), ModelOptions(law="foreseen")), Seq(0, [0], ask, 64)
        drafter.begin(seq)
        tree = drafter.draft([seq], Plan(3, nodes=12, width=3), SeededNoise([seed])).trees[0]
        assert tree.law == "foreseen"
        assert tree.drafted >= 3
        for node, below in enumerate(tree.children()):
            if not below:
                continue
            path = [tree.tokens[n] for n in tree.path(node)]
            support, slot = shape(law([0, *path]), ask), target_slot(1 + len(path))
            ids = torch.arange(9) if support.ids is None else support.ids
            order = ids[
                torch.from_numpy(paces(support.weights, hashed(seed, slot), support.ids)).argsort(descending=True)
            ]
            assert [tree.tokens[child] for child in below] == order[: len(below)].tolist()
            assert tree.tokens[below[0]] == support.token(
                SeededNoise([seed]).pick(0, slot, support.weights, support.ids)
            )


def test_foreseen_guesses_that_lead_by_little_are_not_grown():
    """A token that leads its race by little is no surer than its share of all paces: chains end there."""
    lengths = {confidence: [] for confidence in (0.0, 0.5, 0.9)}
    for confidence, found in lengths.items():
        draw = grown("foreseen", Plan(6, confidence=confidence), vocab=6)
        found += [draw(SeededNoise([seed])).drafted for seed in range(40)]
    assert lengths[0.0] == [6] * 40
    assert all(a >= b >= c for a, b, c in zip(*lengths.values(), strict=True))
    assert sum(lengths[0.9]) < sum(lengths[0.5]) < 0.8 * sum(lengths[0.0])


class Law:
    """Rows [V] by path for one sequence, as a head has them."""

    def __init__(self, rows):
        self.rows = rows

    def draw(self, shape, plan, law="chosen", **params):
        """The tree of a growth to its end over these rows, by depth."""
        seq = Seq(0, [0], SamplingParams(**params), 64)
        growth = Growth(seq, 0, plan.depth, plan.width, plan, law, shape)
        grow_over([growth], self.rows[None], self, self.rows.shape[1], SeededNoise([3]))
        return growth.tree()

    @property
    def head(self):
        return SimpleNamespace(words=None)

    vocabulary = PLAIN


def kept(tree):
    """Rank-free paths of a tree's nodes."""
    return {tuple(tree.tokens[n] for n in tree.path(node)) for node in range(1, len(tree))}


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 6])
def test_274_a_single_child_has_its_own_log_probability(nodes):
    """Trees that are cut keep the likeliest nodes, however many children each has."""
    # At depth 0 words 1 and 2 lie close together; below them one child each, which is never likelier than 0.4.
    rows = torch.tensor([[0.02, 0.5, 0.4, 0.08], [0.3, 0.4, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]]).log()
    shape = Shape.of([[0], [1], [0, 0], [1, 0], [0, 0, 0], [2]])
    order = [(1,), (2,), (1, 1), (2, 1), (3,), (1, 1, 3)]  # 0.5, 0.4, 0.2, 0.16, 0.08, 0.08 * 1
    rows[2, 3] = math.log(0.39)  # so that (1, 1, 3), 0.078, comes after (3,)
    tree = Law(rows).draw(shape, Plan(3, nodes=nodes, width=3))
    assert kept(tree) == set(order[:nodes])


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_274_scores_are_sums_of_the_rows_own_logarithms(temperature):
    """In growing and static trees, at every width, whatever the request's temperature: EAGLE's are at temperature 1."""
    rows = torch.randn(3, 8, generator=torch.Generator().manual_seed(2))
    for static, plan in (
        (None, Plan(3, nodes=7, width=3, signals=True)),
        (None, Plan(3, nodes=3, width=1, confidence=0.01, signals=True)),
        (Shape.of([[0], [1], [0, 0], [1, 0], [1, 0, 0]]), Plan(3, nodes=4, width=2, signals=True)),
    ):
        asked = {"temperature": temperature, "seed": 1}
        growth_rows, seq = Law(rows), Seq(0, [0], SamplingParams(**asked), 64)
        growth = Growth(seq, 0, 3, plan.width, plan, "chosen", static)
        grow_over([growth], rows[None], growth_rows, 8, SeededNoise([3]))
        logs = torch.log_softmax(rows, -1)
        for node in range(1, len(growth._tokens)):
            path, at = [], node
            while at:
                path.insert(0, growth._tokens[at])
                at = growth._parents[at]
            want = sum(float(logs[depth, token]) for depth, token in enumerate(path))
            assert growth._scores[node] == pytest.approx(want, abs=1e-5)
