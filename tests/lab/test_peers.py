"""`scripts/peers`: who takes turns, and what becomes of their times."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

from forerun.lab.experiments import views
from forerun.lab.views import Chart, spoken

PLACE = Path(__file__).parents[2] / "scripts" / "peers.d"


@pytest.fixture
def figures(monkeypatch):
    spec = importlib.util.spec_from_file_location("figures", PLACE / "figures.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "figures", module)
    spec.loader.exec_module(module)
    return module


def test_everyone_has_each_turn_once_and_comparisons_stay_together(figures):
    for turn in range(3):
        order = figures.turns(figures.FIGURES, turn)
        wanted = {(f.task, worker) for f in figures.FIGURES for worker in (f.peer, f.ours)}
        assert Counter(order) == dict.fromkeys(wanted, 1)
        bf16 = [order.index(("decode", f"{who}/bf16")) for who in ("ours", "llama.cpp", "transformers")]
        assert max(bf16) - min(bf16) == 2
    assert [figures.turns(figures.FIGURES, turn)[0][1] for turn in range(4)] == [
        "ours/bf16", "llama.cpp/bf16", "transformers/bf16", "ours/bf16",
    ]  # fmt: skip


def test_ratios_are_of_the_peer_over_ours_within_a_round(figures):
    decode = [figure for figure in figures.FIGURES if figure.name == "llama.cpp/int8"]
    rounds = [
        {("decode", "llama.cpp/int8"): peer, ("decode", "ours/int8"): ours} for peer, ours in ((20, 10), (90, 30))
    ]
    assert figures.ratios(decode, rounds) == {"llama.cpp/int8": [2.0, 3.0]}
    assert figures.summary([2.0, 3.0, 2.25]) == {"median": 2.25, "lowest": 2.0, "highest": 3.0}


def test_every_worker_is_started_once(figures):
    names = figures.workers(figures.FIGURES)
    assert len(names) == len(set(names)) == 7


@pytest.mark.parametrize(
    ("first", "second", "share"),
    [("", "", 1.0), ("ab", "ab", 1.0), ("abcd", "abxd", 0.5), ("a", "ab", 0.5), ("x", "", 0.0)],
)
def test_agreement_is_a_share_of_the_longer(figures, first, second, share):
    assert figures.agreement(first, second) == share


def test_the_records_make_the_figures_and_those_the_tables(figures):
    chosen = [figure for figure in figures.FIGURES if figure.name in ("llama.cpp/q4", "llama.cpp/q4/rows8")]
    records = []
    for turn, (peer, ours) in enumerate(((20.0, 10.0), (90.0, 30.0), (50.0, 20.0))):
        for worker, ms, tokens in (("llama.cpp/q4", peer, [1, 2, 3, 4]), ("ours/q4", ours, [1, 2, 3, 5])):
            base = {"round": turn, "worker": worker, "ms": ms}
            records.append(
                {**base, "task": "decode", "tokens": tokens, **({"loop_ms": 9.0 + turn} if ms == ours else {})}
            )
            records.append({**base, "task": "rows8", "ms": 2 * ms})
    found = figures.report(chosen, records, lambda ids: "".join(map(str, ids)))
    assert found["ratios"] == {"llama.cpp/q4": 2.5, "llama.cpp/q4/rows8": 2.5}
    assert found["spread"]["llama.cpp/q4"] == {"median": 2.5, "lowest": 2.0, "highest": 3.0}
    assert found["same_text"] == {"llama.cpp/q4": 0.75}
    assert found["ms"]["ours/q4 decode loop"] == {"median": 10.0, "lowest": 9.0, "highest": 11.0}
    whole = {**found, "rounds": 3, "tokens": 4, "context": 8}
    for load, said in ((0.1, False), (1.5, True)):
        shown = views("peers", {**whole, "load_at_start": load})
        assert ("NOT quiet" in spoken(shown)) is said
    assert "2.50 (2.00..3.00)" in spoken(shown)
    assert "75%" in spoken(shown)
    (chart,) = (view for view in shown if isinstance(view, Chart))
    assert chart.series[0].highs == (3.0, 3.0)
