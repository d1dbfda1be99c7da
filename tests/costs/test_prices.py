"""Prices: made of noisy times, read from files, asked by whatever decides."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forerun
from forerun.core.errors import LoadError, SpecError
from forerun.costs.prices import BITS, FREE, ISAS, Prices, Worth, default, of_milliseconds, read

ROOT = Path(__file__).parents[2]
NOISY = Prices({1: 1.0, 2: 1.2, 3: 1.1, 4: 1.3, 8: 1.3, 16: 2.9})


def test_each_further_row_costs_at_least_as_much_as_the_one_before():
    rows = [NOISY.row(n) for n in range(2, 40)]
    assert rows == sorted(rows)
    assert rows[0] >= 0


def test_a_price_is_never_above_what_was_measured():
    assert all(NOISY.forward(n) <= cost + 1e-12 for n, cost in {2: 1.2, 3: 1.1, 4: 1.3, 8: 1.3, 16: 2.9}.items())


def test_by_hand():
    prices = Prices({1: 1.0, 5: 1.4, 9: 2.2})
    assert [prices.forward(n) for n in (1, 3, 5, 7, 9, 11)] == pytest.approx([1.0, 1.2, 1.4, 1.8, 2.2, 2.6])
    assert [prices.row(n) for n in (1, 2, 5, 6, 9, 100)] == pytest.approx([0.1, 0.1, 0.1, 0.2, 0.2, 0.2])
    assert prices.full == 5
    assert prices.mean_row == pytest.approx((prices.forward(16) - 1) / 15)


def test_of_what_nobody_measured_rows_are_free():
    assert (FREE.forward(100), FREE.row(100), FREE.full) == (1.0, 0.0, 0)


def test_a_price_that_was_said_counts_for_every_row():
    worth = Worth(NOISY, 0.5, least=0.25)
    assert [worth.row(n) for n in (2, 30)] == [0.25, 0.25]


@pytest.mark.parametrize("forwards", [{}, {2: 1.0}, {1: 0.0}, {1: 1.0, 2: float("nan")}, {1: 1.0, 0: 1.0}, {1: True}])
def test_what_cannot_be_a_price_is_refused(forwards):
    with pytest.raises(SpecError, match="price"):
        Prices(forwards)


@pytest.mark.parametrize("isa", [*ISAS, "neon"])
@pytest.mark.parametrize("format", [*BITS, "mxfp4"])
def test_there_is_a_default_for_every_machine_and_format(isa, format):
    assert default(isa, format).forward(16) > 1


def test_fewer_bits_make_rows_dearer():
    assert default("avx512_bf16", "q4_1").row(8) > default("avx512_bf16", "bf16").row(8)


def test_a_curve_of_one_s_own_is_read(tmp_path):
    (tmp_path / "own.json").write_text(json.dumps({"figures": {"ms_by_rows": {"1": 4.0, "8": 8.0}}}))
    assert read(tmp_path / "own.json") == of_milliseconds({"1": 4.0, "8": 8.0}) == Prices({1: 1.0, 8: 2.0})


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"figures": {"ms_by_rows": {"8": 1.0}}}', '{"figures": {"ms_by_rows": 3}}']
)
def test_a_file_without_costs_is_named(text, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(LoadError, match=r"x\.json holds no costs of forwards: .*forerun lab curve"):
        read(tmp_path / "x.json")


def test_costs_are_read_before_a_model_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["forerun.assemble"], "opened", lambda *args: pytest.fail("a model was loaded"))
    with pytest.raises(LoadError, match=r"costs cannot be read from .*nothing\.json \(No such file"):
        forerun.load("smollm2", costs=str(tmp_path / "nothing.json"))


def test_the_packaged_prices_are_those_of_the_results():
    subprocess.run([sys.executable, ROOT / "scripts/costs", "--check"], check=True)


PRICED = re.compile(r"(^|_)(COST|PRICE|MIN_PROB|LEVEL|CHEAP|ROWS)(S|_|$)")


def test_no_price_is_a_constant_elsewhere():
    """In what drafts, plans or puts an engine together no number is called a cost, a price, or so many rows."""
    found = []
    for room in ("assemble.py", "heads.py", "drafters", "control", "trees", "engine", "core"):
        path = ROOT / "src/forerun" / room
        for file in [path] if path.is_file() else path.rglob("*.py"):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                targets = node.targets if isinstance(node, ast.Assign) else []
                names = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
                numbers = any(isinstance(n, ast.Constant) and isinstance(n.value, float | int) for n in ast.walk(node))
                found += [f"{file.name}: {name}" for name in names if numbers and PRICED.search(name)]
    assert found == []
