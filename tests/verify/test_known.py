"""Expected accepted counts against values computed apart, in fractions, by another program (shared/proofs)."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest
import torch

from forerun.testing.exact import table_draft, widths
from forerun.testing.gate import measure
from forerun.testing.tables import fixed_table
from forerun.verify import verifier


class Lang:
    """The proof's random languages: rows of small fractions, drawn in the same order."""

    def __init__(self, seed: int, vocab: int = 3, depth: int = 4) -> None:
        rng = random.Random(seed)
        self.p, self.q = {}, {}
        for length in range(depth + 1):
            for context in itertools.product(range(vocab), repeat=length):
                self.p[context] = self.row(rng, vocab)
                self.q[context] = self.row(rng, vocab)

    @staticmethod
    def row(rng: random.Random, vocab: int) -> torch.Tensor:
        weights = [rng.randint(1, 6) for _ in range(vocab)]
        return torch.tensor([float(Fraction(weight, sum(weights))) for weight in weights], dtype=torch.float64)

    def measure(self, name: str, law: str, *shape: int):
        return measure(
            verifier(name),
            lambda tokens: self.p[tokens[1:]],
            lambda noise: table_draft(noise, (0,), lambda tokens: self.q[tokens[1:]], widths(*shape), law),
        )


CHAIN = {"token": (1.113514, 2.073187, 2.233017), "block": (1.235516, 2.152626, 2.353751)}
CHAIN |= {"tree": CHAIN["token"], "reference": CHAIN["token"], "traversal": CHAIN["block"], "auto": CHAIN["block"]}

TREE = {
    ("tree", "distinct"): (1.110458, 1.838254, 1.856126),
    ("tree", "sampled"): (0.990212, 1.729228, 1.741143),
    ("match", "distinct"): (0.833756, 1.137781, 1.198332),
    ("match", "sampled"): (0.585353, 0.840623, 0.909152),
    ("traversal", "distinct"): (1.168929, 1.843593, 1.876562),
    ("traversal", "sampled"): (1.039647, 1.733395, 1.778728),
    ("tree", "chosen"): (0.604396, 1.161111, 1.413690),
    ("match", "chosen"): (0.604396, 1.161111, 1.413690),
    ("traversal", "chosen"): (0.604396, 1.161111, 1.413690),
}
TREE |= {("auto", law): TREE["traversal", law] for law in ("sampled", "distinct", "chosen")}
TREE |= {("reference", law): TREE["tree", law] for law in ("sampled", "distinct", "chosen")}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", CHAIN)
def test_chain_of_three(name, seed):
    found = Lang(seed).measure(name, "sampled", 1, 1, 1)
    assert found.accepted == pytest.approx(CHAIN[name][seed - 1], abs=1e-6)
    assert found.deviation < 1e-12


@pytest.mark.parametrize(
    ("name", "law", "seed"),
    [
        pytest.param(*pair, seed, marks=[] if i % 3 == seed - 1 else pytest.mark.full)
        for i, pair in enumerate(TREE)
        for seed in (1, 2, 3)
    ],
)
def test_tree_of_two_by_two(name, law, seed):
    found = Lang(seed).measure(name, law, 2, 2)
    assert found.accepted == pytest.approx(TREE[name, law][seed - 1], abs=1e-6)
    assert found.deviation < 1e-12


@pytest.mark.parametrize(("name", "accepted"), [("token", 10 / 9), ("block", 11 / 9), ("traversal", 11 / 9)])
def test_toy_of_the_block_paper(name, accepted):
    drafter = fixed_table([2 / 3, 1 / 3])
    found = measure(
        verifier(name), fixed_table([1 / 3, 2 / 3]), lambda noise: table_draft(noise, (0,), drafter, widths(1, 1))
    )
    assert found.accepted == pytest.approx(accepted, abs=1e-12)
    assert found.deviation < 1e-12


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_closed_forms_on_chains(seed):
    """E[accepted] is the sum over lengths of E[prod min(1, r)] token by token, and of E[P] as a block."""
    lang = Lang(seed)
    token = block = 0.0
    for length in (1, 2, 3):
        for text in itertools.product(range(3), repeat=length):
            drawn = capped = product = 1.0
            for i, x in enumerate(text):
                p, q = float(lang.p[text[:i]][x]), float(lang.q[text[:i]][x])
                drawn *= q
                capped = min(1.0, capped * p / q)
                product *= min(1.0, p / q)
            token += drawn * product
            block += drawn * capped
    assert lang.measure("token", "sampled", 1, 1, 1).accepted == pytest.approx(token, abs=1e-12)
    assert lang.measure("block", "sampled", 1, 1, 1).accepted == pytest.approx(block, abs=1e-12)


@pytest.mark.parametrize(("seed", "wrong"), [(1, 7.69e-2), (2, 2.06e-1), (3, 3.27e-1)])
def test_the_gate_catches_top_k_children_called_distinct(seed, wrong):
    """The wrong pairing that EAGLE's users ask about: children picked by rule, judged by p/q."""
    lang = Lang(seed)

    def untruthful(noise):
        tree = table_draft(noise, (0,), lambda tokens: lang.q[tokens[1:]], widths(2, 2), "chosen")
        rows = {}
        for node, children in enumerate(tree.children()):
            if children:
                path = tuple(tree.tokens[n] for n in tree.path(node))
                rows[node] = lang.q[path]
        return type(tree)(tree.tokens, tree.parents, "distinct", rows)

    found = measure(verifier("tree"), lambda tokens: lang.p[tokens[1:]], untruthful)
    assert found.deviation == pytest.approx(wrong, rel=5e-3)
    assert found.accepted == pytest.approx((0.5, 1.568148, 1.861111)[seed - 1], abs=1e-6)
    assert sum(found.emitted.values()) == pytest.approx(1.0)
