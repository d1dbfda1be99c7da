"""The gate: every lossless verifier, every law it takes, on chains and trees, leaves the target's law as it is.

All of chance is enumerated, the drafter's and the verifier's, so what is compared are distributions; rounding is the
only deviation there may be.
"""

from __future__ import annotations

import pytest
import torch

from forerun.core.draft import Tree
from forerun.core.params import SamplingParams
from forerun.testing.exact import Shape, Table, table_draft, widths
from forerun.testing.gate import measure
from forerun.testing.tables import fixed_table, random_table
from forerun.verify import VERIFIERS, verifier

ROUNDING = 1e-12
LOSSLESS = [name for name, made in VERIFIERS.items() if made.lossless and not made.greedy_only]
CHAINS = [name for name in LOSSLESS if VERIFIERS[name].chains_only]
TREES = [name for name in LOSSLESS if not VERIFIERS[name].chains_only]
LAWS = ["sampled", "distinct", "chosen"]

LEFT_HEAVY: Shape = (((), ((),)), ())
RIGHT_HEAVY: Shape = ((), ((), ()))
RANKED: Shape = (((((),),), ()), (), ())


def apart(vocab: int, seed: int) -> tuple[Table, Table]:
    return random_table(vocab, seed), random_table(vocab, seed + 100)


def holes(vocab: int, seed: int) -> tuple[Table, Table]:
    return random_table(vocab, seed, zeros=0.4), random_table(vocab, seed + 100, zeros=0.4)


def same(vocab: int, seed: int) -> tuple[Table, Table]:
    return random_table(vocab, seed), random_table(vocab, seed)


def disjoint(vocab: int, seed: int) -> tuple[Table, Table]:
    return random_table(vocab, seed, range(0, vocab, 2)), random_table(vocab, seed + 100, range(1, vocab, 2))


def certain_drafter(vocab: int, seed: int) -> tuple[Table, Table]:
    return random_table(vocab, seed), random_table(vocab, seed + 100, zeros=1.0)


def certain_target(vocab: int, seed: int) -> tuple[Table, Table]:
    return random_table(vocab, seed, zeros=1.0), random_table(vocab, seed + 100)


KINDS = [apart, holes, same, disjoint, certain_drafter, certain_target]


def deviation(
    name: str, law: str, shape: Shape, tables: tuple[Table, Table], stops: frozenset[int] = frozenset()
) -> float:
    target, drafter = tables
    return measure(
        verifier(name), target, lambda noise: table_draft(noise, (0,), drafter, shape, law, stops=stops)
    ).deviation


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", LOSSLESS)
def test_chains(name, law, kind):
    for depth, vocab in ((0, 3), (1, 4), (2, 3), (3, 2), (3, 3)):
        for seed in (1, 2):
            assert deviation(name, law, widths(*[1] * depth), kind(vocab, seed)) < ROUNDING, (depth, vocab, seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", TREES)
def test_small_trees(name, law, kind):
    shapes = ((widths(2, 2), 2), (widths(3), 3), (widths(2), 4), (LEFT_HEAVY, 2), (RIGHT_HEAVY, 2))
    for shape, vocab in shapes:
        assert deviation(name, law, shape, kind(vocab, 3)) < ROUNDING, (shape, vocab)


@pytest.mark.parametrize("shape", [widths(2, 2), widths(3, 1), widths(1, 2), RANKED], ids=str)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", TREES)
def test_larger_trees(name, law, shape):
    assert deviation(name, law, shape, holes(3, 4)) < ROUNDING


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", TREES)
def test_deep_trees(name, law):
    assert deviation(name, law, widths(2, 1, 2), apart(2, 5)) < ROUNDING
    assert deviation(name, law, widths(2, 1, 2), holes(3, 6)) < ROUNDING


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", TREES)
def test_no_guesses_after_a_stop(name, law):
    """What is drafted may depend on what was drawn above it, as after a stop token."""
    assert deviation(name, law, widths(2, 2), apart(3, 7), stops=frozenset({1})) < ROUNDING


@pytest.mark.parametrize("name", CHAINS)
def test_no_guesses_after_a_stop_on_chains(name):
    assert deviation(name, "sampled", widths(1, 1, 1), apart(3, 7), stops=frozenset({1})) < ROUNDING


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", [*LOSSLESS, "greedy"])
def test_greedy_text_is_certain(name, law):
    """At temperature 0, drafters with and without chance in them leave one text."""
    for drafter in (random_table(3, 8), random_table(3, 8, zeros=1.0)):
        found = measure(
            verifier(name),
            random_table(3, 9),
            lambda noise: table_draft(noise, (0,), drafter, widths(1, 1), law),
            SamplingParams(temperature=0.0),
        )
        assert found.deviation == 0.0


@pytest.mark.parametrize("params", [{"top_k": 2}, {"top_p": 0.7}, {"min_p": 0.4}, {"temperature": 0.5}], ids=str)
@pytest.mark.parametrize("name", TREES)
def test_sampling_parameters_shape_the_target_only(name, params):
    drafter = random_table(4, 11)
    found = measure(
        verifier(name),
        random_table(4, 10),
        lambda noise: table_draft(noise, (0,), drafter, widths(2), "distinct"),
        SamplingParams(**{"temperature": 1.0, **params}),
    )
    assert found.deviation < ROUNDING


@pytest.mark.parametrize("name", TREES)
def test_rows_in_single_precision(name):
    """Float32 draft rows under a float64 target are no fault, but are rounded."""
    drafter = random_table(3, 12)
    single = lambda tokens: drafter(tokens).to(torch.float32)
    found = measure(
        verifier(name), random_table(3, 13), lambda noise: table_draft(noise, (0,), single, widths(2, 1), "distinct")
    )
    assert found.deviation < 1e-6


@pytest.mark.parametrize("name", LOSSLESS)
def test_fixed_rows(name):
    found = measure(
        verifier(name),
        fixed_table([0.5, 0.25, 0.25]),
        lambda noise: table_draft(noise, (0,), fixed_table([0.25, 0.5, 0.25]), widths(1, 1)),
    )
    assert found.first == pytest.approx((0.5, 0.25, 0.25), abs=ROUNDING)


@pytest.mark.parametrize("name", TREES)
def test_chosen_siblings_may_repeat(name):
    tree = Tree((0, 1, 1, 0, 1, 2, 2), (-1, 0, 0, 0, 1, 1, 2))
    assert measure(verifier(name), random_table(3, 14), lambda noise: tree).deviation < ROUNDING
