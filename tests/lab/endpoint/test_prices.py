"""Costs, and price tables that cannot be meant."""

import json

import pytest

from forerun.core.errors import LoadError, SpecError
from forerun.lab.endpoint.chunk import Usage
from forerun.lab.endpoint.prices import Price, read_prices


def test_rejected_prediction_tokens_are_paid_as_output_once():
    price = Price(1.0, 10.0, per=100)
    usage = Usage(prompt=50, completion=30, accepted_prediction=12, rejected_prediction=8)
    assert price.cost(usage) == pytest.approx(0.5 + 3.0)  # the 8 are among the 30
    assert price.of_rejected(usage) == pytest.approx(0.8)
    apart = Usage(prompt=50, completion=5, rejected_prediction=8)  # they cannot be among the 5
    assert price.cost(apart) == pytest.approx(0.5 + 1.3)


def test_cached_prompt_tokens_have_their_own_price_if_the_table_says_so():
    usage = Usage(prompt=100, completion=0, cached=60)
    assert Price(1.0, 1.0, per=100).cost(usage) == pytest.approx(1.0)
    assert Price(1.0, 1.0, per=100, cached=0.5).cost(usage) == pytest.approx(0.4 + 0.3)


def test_a_pair_a_table_and_none(tmp_path):
    assert read_prices("0.15, .6".replace(".6", "0.6"), ["A", "B"]) == dict.fromkeys("AB", Price(0.15, 0.6))
    assert read_prices(None, ["A"]) == {}
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({"A": {"input": 0.15, "output": 1, "per": 1000, "currency": "EUR"}, "other": {}}))
    assert read_prices(str(file), ["A"]) == {"A": Price(0.15, 1.0, 1000, "EUR")}


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({"B": {"input": 1, "output": 1}}, SpecError, "no price of 'A'"),
        ({"A": {"input": 1, "ouput": 1}}, SpecError, "did you mean 'output'"),
        ({"A": {"input": 1}}, SpecError, "needs the option 'output'"),
        ({"A": {"input": -1, "output": 1}}, SpecError, "0 or more"),
        ({"A": {"input": 1, "output": 1, "per": 0}}, SpecError, "from 1 up"),
        ({"A": 3}, SpecError, "an object with input, output"),
        ([], LoadError, "no JSON object"),
    ],
)
def test_odd_tables_are_refused(tmp_path, table, error, message):
    file = tmp_path / "prices.json"
    file.write_text(json.dumps(table))
    with pytest.raises(error, match=message):
        read_prices(str(file), ["A"])


def test_what_is_neither_a_pair_nor_a_file_is_refused(tmp_path):
    with pytest.raises(SpecError, match="IN,OUT per million"):
        read_prices("cheap", ["A"])
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(LoadError, match="cannot be read"):
        read_prices(str(tmp_path / "broken.json"), ["A"])
