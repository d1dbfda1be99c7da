"""Which format a matrix takes, case by case."""

from __future__ import annotations

import pytest

from forerun.models.formats import choose


@pytest.mark.parametrize(
    ("weights", "kinds", "edge", "format", "says"),
    [
        ("auto", "F32", False, "f32", ""),
        ("auto", "BF16", True, "bf16", ""),
        ("auto", "F16", False, "bf16", "F16 has no kernel"),
        ("auto", "Q8_0 Q8_0", False, "q8_0", ""),
        ("auto", "Q4_0", True, "q4_0", ""),
        ("auto", "Q4_1", False, "q4_1", ""),
        ("auto", "Q6_K", True, "int8", "Q6_K has no kernel, so it is int8"),
        ("auto", "Q5_K Q4_K Q6_K", False, "int8", "Q4_K and Q5_K and Q6_K have no kernel"),
        ("auto", "Q4_1 Q5_1", False, "int8", "Q5_1 has no kernel"),
        ("auto", "Q4_0 Q4_1 Q4_0", False, "int8", "Q4_0 and Q4_1 lie in one product"),
        ("auto", "F32 BF16", False, "f32", "BF16 and F32 lie in one product"),
        ("auto", "F16 BF16", False, "bf16", "F16 has no kernel"),
        ("auto", "F32 Q8_0", False, "int8", "lie in one product"),
        ("f32", "Q4_1", False, "f32", ""),
        ("bf16", "F32", True, "bf16", ""),
        ("int8", "Q8_0", True, "int8", ""),
        ("q4", "F32", False, "q4_1", ""),
        ("q4", "F32", True, "int8", "4 bits cost"),
        ("q4", "Q6_K", True, "int8", "4 bits cost"),
        ("q4", "Q8_0", True, "q8_0", "own q8_0 is kept"),
        ("q4", "Q8_0", False, "q4_1", ""),
        ("q4", "Q4_0 Q4_0", False, "q4_0", "own q4_0 is kept"),
        ("q4", "Q4_0 Q4_1", False, "q4_1", ""),
        ("q4", "Q4_1", True, "q4_1", "own q4_1 is kept"),
        ("nf4", "Q4_1", False, "nf4", ""),
        ("nf4", "BF16", True, "int8", "4 bits cost"),
        ("nf4", "Q8_0", True, "q8_0", "own q8_0 is kept"),
    ],
)
def test_choice(weights, kinds, edge, format, says):
    got, why = choose(weights, tuple(kinds.split()), edge)
    assert got == format
    assert says in why
    assert bool(says) == bool(why)
