"""The enumeration of all verifiers, and of broken ones: both are told apart."""

import pytest

from forerun.lab.lossless import exact
from forerun.lab.lossless.exact import measure_exact
from forerun.lab.lossless.findings import findings, overall
from forerun.lab.run import Run
from forerun.testing.enumeration import LIMIT, Case
from forerun.testing.sabotage import FAULTS
from forerun.verify import VERIFIERS


@pytest.fixture
def few(monkeypatch):
    """Two cases a verifier."""

    def some(verify, *, quick=False):
        return [Case("sampled", "token"), Case("chosen", "chain", table="dense", drafter="ngram")]

    monkeypatch.setattr(exact, "cases", some)


def test_figures_of_all_verifiers_and_the_planted_ones(few):
    figures, samples = measure_exact(Run("lossless", None, {}))
    assert set(figures["verifiers"]) == set(VERIFIERS) - {"greedy", "typical"}
    assert figures["cases"] == len(samples) == 14
    assert figures["largest_deviation"] < LIMIT
    assert set(figures["planted"]) == set(FAULTS)
    assert all(planted["caught"] for planted in figures["planted"].values())
    said = findings({"exact": figures})
    assert overall(said) == "lossless"


@pytest.mark.parametrize(("also", "sabotage"), [("typical", None), ("auto", "residual")])
def test_what_is_not_lossless_breaks_the_verdict(few, also, sabotage):
    figures, _ = measure_exact(Run("lossless", None, {}), also, sabotage)
    assert figures["largest_deviation"] > LIMIT
    assert overall(findings({"exact": figures})).startswith("broken: exact: verifier")
