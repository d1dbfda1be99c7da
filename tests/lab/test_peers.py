"""`scripts/peers`: who takes turns, and what becomes of their times."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[2] / "scripts" / "peers.d"


def load(name, monkeypatch):
    spec = importlib.util.spec_from_file_location(name, PLACE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def figures(monkeypatch):
    return load("figures", monkeypatch)


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


def test_a_file_is_converted_and_its_metadata_kept(tmp_path, models, monkeypatch):
    import numpy as np

    from forerun.testing.tiny import Tiny, write_gguf
    from forerun.weights.folder import open_checkpoint

    convert = load("convert", monkeypatch)
    tiny = Tiny(hidden=64, heads=4, head_dim=16, inner=96)
    source = write_gguf(tmp_path / "tiny.Q4_1.gguf", tiny, quantization="Q4_1")
    before = open_checkpoint(source)
    for kind, close in (("BF16", 1e-2), ("Q8_0", 2e-2)):
        path = convert.converted(source, kind, tmp_path / "made")
        assert path.name == f"tiny.{kind}.gguf"
        after = open_checkpoint(path)
        assert dict(after.config) == dict(before.config)
        assert {key: value for key, value in after.metadata.items() if key != "general.file_type"} == dict(
            before.metadata
        )
        for name in before.tensors.names():
            np.testing.assert_allclose(
                after.tensors.load(name).float(), before.tensors.load(name).float(), atol=5 * close
            )
        stamp = path.stat().st_mtime_ns
        assert convert.converted(source, kind, tmp_path / "made").stat().st_mtime_ns == stamp
