"""The enumeration: right verifiers deviate by rounding, broken ones by more."""

import pytest

from forerun.core.errors import SpecError
from forerun.testing.enumeration import LIMIT, Case, cases, enumerate_case
from forerun.testing.sabotage import FAULTS, Sabotaged
from forerun.verify import VERIFIERS


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("token", Case("sampled", "chain", table="dense")),
        ("block", Case("distinct", "chain", params="shaped")),
        ("traversal", Case("distinct", "tree")),
        ("tree", Case("sampled", "fork", table="dense")),
        ("auto", Case("foreseen", "tree")),
        ("match", Case("chosen", "chain", table="dense", drafter="ngram")),
        ("auto", Case("sampled", "chain", batch=2, vocab=2)),
    ],
)
def test_a_right_verifier_deviates_by_rounding_only(name, case):
    found = enumerate_case(VERIFIERS[name](), case)
    assert found.deviation < LIMIT
    assert found.runs > 5
    assert found.accepted > 0


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_caught(fault):
    """And only where it is one: a chain has no siblings."""
    deviation = enumerate_case(Sabotaged(fault), Case("sampled", "fork", table="dense", vocab=2)).deviation
    assert deviation > 1e-3
    on_chain = enumerate_case(Sabotaged(fault), Case("sampled", "chain", table="dense", vocab=2)).deviation
    assert (on_chain > 1e-3) == (fault != "siblings")


def test_a_lossy_rule_deviates_too():
    assert enumerate_case(VERIFIERS["typical"](), Case("sampled", "chain", table="dense")).deviation > 1e-3


def test_cases_are_those_a_verifier_may_judge():
    laws = {name: {case.law for case in cases(VERIFIERS[name]())} for name in ("auto", "block")}
    assert laws == {"auto": {"sampled", "distinct", "chosen", "foreseen"}, "block": {"sampled", "distinct", "chosen"}}
    assert {case.plan for case in cases(VERIFIERS["block"]())} == {"token", "chain"}
    assert {case.plan for case in cases(VERIFIERS["tree"]())} == {"token", "chain", "fork", "tree"}
    assert any(case.batch == 2 for case in cases(VERIFIERS["token"](), quick=True))


def test_unknown_faults_are_refused():
    with pytest.raises(SpecError, match="did you mean 'residual'"):
        Sabotaged("residuals")
