"""Field cases about verification rules, with their numbers: the right law, and not the one the fault gives."""

from __future__ import annotations

import pytest
import torch

from forerun.core.draft import Draft, Tree
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.testing.exact import table_draft, widths
from forerun.testing.gate import SAMPLED, measure, score
from forerun.testing.tables import fixed_table, random_table, script_table
from forerun.verify import VERIFIERS, verifier

LOSSLESS = [name for name, made in VERIFIERS.items() if made.lossless and not made.greedy_only]
REJECTION = [name for name in LOSSLESS if name != "match"]
CHANCE = ["sampled", "distinct"]
GREEDY = SamplingParams(temperature=0.0)


def one(name, target, draft, law="sampled", params=SAMPLED):
    """One drafted token."""
    return measure(
        verifier(name),
        fixed_table(target),
        lambda noise: table_draft(noise, (0,), fixed_table(draft), ((),), law),
        params,
    )


def said(found, right, wrong):
    assert found.first == pytest.approx(right, abs=1e-12)
    assert found.first != pytest.approx(wrong, abs=0.01)


def misdeclared(target, draft_token_from, q, params=SAMPLED, name="token"):
    """What a drafter gets that draws from one row and hands over another."""

    def drafted(noise):
        tree = table_draft(noise, (0,), fixed_table(draft_token_from), ((),))
        return Tree(tree.tokens, tree.parents, "sampled", {0: torch.tensor(q, dtype=torch.float64)})

    return measure(verifier(name), fixed_table(target), drafted, params)


@pytest.mark.parametrize("name", [*LOSSLESS, "greedy"])
def test_1_the_first_token_is_judged_by_the_row_of_the_root(name):
    for guess, accepted in ((1, 0), (7, 1)):
        found = measure(verifier(name), script_table([7, 8, 9], 64), lambda noise: Tree.chain(0, [guess]), GREEDY)
        assert found.emitted == {((7,), (7, 8))[accepted]: 1.0}


@pytest.mark.parametrize("name", [*LOSSLESS, "greedy"])
def test_2_greedy_rows_are_one_hot(name):
    found = one(name, [0.30, 0.50, 0.05, 0.05, 0.05, 0.05], [0.20, 0.19, 0.17, 0.16, 0.14, 0.14], params=GREEDY)
    said(found, (0, 1, 0, 0, 0, 0), (0.2, 0.8, 0, 0, 0, 0))
    assert found.accepted == pytest.approx(0.19, abs=1e-12)


@pytest.mark.parametrize("name", LOSSLESS)
@pytest.mark.parametrize("filters", [{"top_k": 2}, {"top_p": 0.8}], ids=str)
def test_9_filters_hold_for_the_target(name, filters):
    params = SamplingParams(temperature=1.0, **filters)
    target = [0.5, 0.3, 0.15, 0.05]
    right, wrong = (0.625, 0.375, 0, 0), (0.5, 0.3, 0.15, 0.05)
    said(one(name, target, [0.1, 0.2, 0.3, 0.4], params=params), right, wrong)
    both = one(name, target, [0, 0, 3 / 7, 4 / 7], params=params)
    said(both, right, wrong)
    assert both.accepted == 0.0


@pytest.mark.parametrize("name", REJECTION)
def test_10_q_is_what_was_drawn_from(name):
    params = SamplingParams(temperature=1.0, top_k=2)
    found = one(name, [0.5, 0.3, 0.2], [4 / 7, 3 / 7, 0], params=params)
    said(found, (0.625, 0.375, 0), (0.571, 0.429, 0))
    assert found.accepted == pytest.approx(0.946, abs=1e-3)


def test_10_the_gate_catches_another_q():
    params = SamplingParams(temperature=1.0, top_k=2)
    found = misdeclared([0.5, 0.3, 0.2], [4 / 7, 3 / 7, 0], [0.4, 0.3, 0.3], params)
    assert found.first == pytest.approx((4 / 7, 3 / 7, 0), abs=1e-12)
    assert found.accepted == pytest.approx(1.0)
    assert found.deviation > 0.03


@pytest.mark.parametrize("name", LOSSLESS)
def test_11_the_residual_is_divided_not_softmaxed(name):
    said(one(name, [0.6, 0.3, 0.1], [0.2, 0.3, 0.5]), (0.6, 0.3, 0.1), (0.371, 0.415, 0.215))


@pytest.mark.parametrize("name", LOSSLESS)
def test_12_a_certain_drafter_has_a_one_hot_q(name):
    right, wrong = (0.5, 0.5), (0.833, 0.167)
    said(one(name, [0.5, 0.5], [0.6, 0.4], "chosen"), right, wrong)
    said(one(name, [0.5, 0.5], [1.0, 0.0], "sampled"), right, wrong)


def test_12_the_gate_catches_an_argmax_with_its_softmax():
    found = misdeclared([0.5, 0.5], [1.0, 0.0], [0.6, 0.4])
    assert found.first == pytest.approx((0.833, 0.167), abs=1e-3)
    assert found.deviation > 0.1


@pytest.mark.parametrize("name", ["match", "tree", "traversal", "auto", "reference"])
def test_15_top_k_siblings(name):
    found = measure(
        verifier(name),
        fixed_table([0.5, 0.3, 0.2]),
        lambda noise: table_draft(noise, (0,), fixed_table([0.6, 0.3, 0.1]), widths(2), "chosen"),
    )
    assert found.first == pytest.approx((0.5, 0.3, 0.2), abs=1e-12)
    assert found.accepted == pytest.approx(0.8)
    # siblings judged by the unadjusted row: .5, .5 * .3, and a target's draw for the other .35
    assert found.first != pytest.approx((0.675, 0.255, 0.07), abs=0.01)


class Unlucky(SeededNoise):
    """Refuses whatever is not certain by a strict comparison, as a uniform of exactly 1.0 does."""

    def accept(self, b, slot, chance):
        return chance > 1.0


@pytest.mark.parametrize("law", ["sampled", "distinct", "chosen"])
@pytest.mark.parametrize("name", LOSSLESS)
def test_16_a_residual_without_mass(name, law):
    assert one(name, [1, 0, 0], [1, 0, 0], law).emitted == {(0, 0): 1.0}
    assert one(name, [1, 0], [0, 1], law).emitted == {(0,): 1.0}
    row = fixed_table([0.5, 0.5])
    for seed in range(20):
        noise = Unlucky([seed])
        tree = table_draft(noise, (0,), row, widths(1, 1), law)
        draft = Draft((tree,))
        (tokens,) = verifier(name)(draft, score([tree], row, [SAMPLED], [(0,)]), noise).emitted(draft)
        assert set(tokens) <= {0, 1}


@pytest.mark.parametrize("name", LOSSLESS)
def test_20_every_rule_keeps_the_law_and_accepts_its_own_share(name):
    row = [0.4, 0.3, 0.2, 0.1]
    sampled, chosen = one(name, row, row), one(name, row, row, "chosen")
    assert sampled.first == pytest.approx(row, abs=1e-12)
    assert chosen.first == pytest.approx(row, abs=1e-12)
    assert sampled.accepted == pytest.approx(0.30 if name == "match" else 1.0)
    assert chosen.accepted == pytest.approx(0.40)


@pytest.mark.parametrize("name", [*LOSSLESS, "typical"])
@pytest.mark.parametrize("law", ["sampled", "chosen"])
@pytest.mark.parametrize("behind", [7, 8], ids=["wrong", "what the target says instead"])
def test_22_nothing_survives_behind_a_refusal(name, law, behind):
    drafter = script_table([5, 6, behind, 9], 16)
    found = measure(
        verifier(name),
        script_table([5, 8, 9, 10], 16),
        lambda noise: table_draft(noise, (0,), drafter, widths(1, 1, 1), law),
    )
    assert found.emitted == {(5, 8): 1.0}


@pytest.mark.parametrize("name", [*LOSSLESS, "typical"])
def test_85_a_batch_is_its_sequences_each_alone(name):
    tables = [
        fixed_table([0.9 if i == 10 * r else 0.1 / 9 if 10 * r < i < 10 * r + 10 else 0.0 for i in range(50)])
        for r in range(5)
    ]
    for size in range(1, 6):
        for seed in range(20):
            seeds = [1000 * seed + b for b in range(size)]
            prompts = [(10 * b,) * (b + 1) for b in range(size)]
            noise = SeededNoise(seeds)
            shapes = [widths(*[1] * (b % 3 + 1)) for b in range(size)]
            trees = [table_draft(noise, prompts[b], tables[b], shapes[b], b=b) for b in range(size)]
            target = lambda tokens: tables[tokens[0] // 10](tokens)
            rows = score(trees, target, [SAMPLED] * size, prompts)
            together = verifier(name)(Draft(tuple(trees)), rows, noise)
            for b, tokens in enumerate(together.emitted(Draft(tuple(trees)))):
                assert {token // 10 for token in tokens} == {b}
                alone = score([trees[b]], target, [SAMPLED], [prompts[b]])
                verdict = verifier(name)(Draft((trees[b],)), alone, SeededNoise([seeds[b]]))
                assert verdict.paths[0] == together.paths[b]
                assert verdict.bonus[0] == together.bonus[b]


@pytest.mark.parametrize("name", ["match", "greedy", "tree", "traversal", "auto", "reference", "typical"])
def test_157_only_the_argmax_survives_at_temperature_0(name):
    row = torch.full((8,), -10.0, dtype=torch.float64)
    row[5], row[6], row[7] = 3.0, 2.999, 2.9
    target = lambda tokens: torch.softmax(row, -1)
    for order in ((5, 6, 7), (7, 6, 5)):
        tree = Tree((0, *order), (-1, 0, 0, 0))
        found = measure(verifier(name), target, lambda noise: tree, GREEDY)
        assert found.emitted == {(5, 5): 1.0}


@pytest.mark.parametrize("law", ["sampled", "chosen"])
@pytest.mark.parametrize("name", [*LOSSLESS, "typical"])
def test_no_row_is_asked_for_below_a_token_that_a_grammar_forbids(name, law):
    """The hook would be asked about a text that cannot be; it may well raise."""

    def allowed(output):
        assert 1 not in output, "asked below a forbidden token"
        return [0, 2]

    params = SamplingParams(temperature=1.0, allowed=allowed)
    target = random_table(3, 1)
    shape = widths(1, 1, 1) if VERIFIERS[name].chains_only else widths(2, 1, 1)
    drafter = fixed_table([0.2, 0.6, 0.2])
    found = measure(verifier(name), target, lambda noise: table_draft(noise, (0,), drafter, shape, law), params, (0,))
    assert sum(found.emitted.values()) == pytest.approx(1.0)
    assert all(1 not in text for text in found.emitted)
