"""Only weights that both can read are compared; the interpreter; files made for llama.cpp."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from forerun.assemble import Config
from forerun.core.errors import LoadError, SpecError
from forerun.lab.bench import Bench
from forerun.lab.peers import environment
from forerun.lab.peers.convert import converted
from forerun.lab.peers.environment import interpreter
from forerun.lab.peers.files import for_llama, for_transformers
from forerun.native import ext
from forerun.testing.tiny import Tiny, write_gguf
from forerun.weights.folder import open_checkpoint

native = pytest.mark.skipif(bool(ext.why_not()), reason="no native runtime")
TINY = Tiny(hidden=64, heads=4, head_dim=16, inner=96)


def at(bench, **subject):
    """The bench as if its weights were others."""
    return Bench(bench.base, replace(bench.subject, **subject))


@pytest.fixture(scope="module")
def over_gguf(models):
    return Bench.open(Config(str(models["gguf"]), runtime="torch", threads=1))


def test_transformers_reads_the_models_own_files_in_our_type(bench, over_gguf, models):
    reads = for_transformers(bench)
    assert (reads.path, reads.dtype, reads.weights) == (models["folder"].resolve(), "float32", "float32")
    reads = for_transformers(at(over_gguf, weights="bf16"))
    assert (reads.path, reads.dtype) == (models["gguf"].resolve(), "bfloat16")
    assert for_transformers(at(bench, weights="auto", formats={"bf16": 9})).dtype == "bfloat16"
    with pytest.raises(SpecError, match=r"transformers .* bf16 or f32, got auto \(q4_1\+q8_0\): give --weights bf16"):
        for_transformers(at(bench, weights="auto", formats={"q8_0": 1, "q4_1": 8}))


def test_llama_reads_the_file_itself_or_one_made_of_it(over_gguf, models, tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path))
    reads = for_llama(at(over_gguf, weights="bf16"))
    assert (reads.weights, reads.path.parent.parent) == ("BF16", tmp_path / "peers")
    with pytest.raises(LoadError, match=r"tiny\.gguf cannot be written as Q8_0 .* shape \(32, 48\)"):
        for_llama(at(over_gguf, weights="int8"))  # blocks of 32 do not fill rows of 48
    for weights in ("f32", "nf4", "q4"):
        with pytest.raises(SpecError, match=f"llama.cpp is compared at the weights auto, bf16 or int8, got {weights}"):
            for_llama(at(over_gguf, weights=weights))


def test_llama_reads_no_folders(bench):
    with pytest.raises(SpecError, match=r"reads \.gguf files, and folder is a folder"):
        for_llama(at(bench, weights="bf16"))


@native
def test_a_file_that_we_keep_as_it_is_goes_to_llama_as_it_is(tmp_path):
    path = write_gguf(tmp_path / "kept.gguf", TINY, quantization="Q4_1")
    reads = for_llama(Bench.open(Config(str(path), runtime="native", threads=1)))
    assert reads.path == path
    assert "q4_1" in reads.weights


@native
def test_a_file_that_we_change_does_not(tmp_path):
    path = write_gguf(tmp_path / "changed.gguf", TINY, quantization="F16")
    with pytest.raises(SpecError, match=r"other weights than we do \(F16 has no kernel.*give --weights bf16"):
        for_llama(Bench.open(Config(str(path), runtime="native", threads=1)))


def test_random_weights_are_in_no_file():
    bench = Bench.open(Config("random:tiny", runtime="torch", threads=1))
    for reads in (for_llama, for_transformers):
        with pytest.raises(SpecError, match="random:tiny is in none: leave --baseline out"):
            reads(at(bench, weights="bf16"))


def test_which_interpreter(tmp_path, monkeypatch):
    monkeypatch.delenv(environment.VARIABLE, raising=False)
    with pytest.raises(SpecError, match="`scripts/peers` of a checkout makes build/peers, or set FORERUN_PEERS"):
        interpreter(tmp_path)
    python = tmp_path / "build" / "peers" / environment.PYTHON
    python.parent.mkdir(parents=True)
    python.touch()
    assert interpreter(tmp_path) == python
    monkeypatch.setenv(environment.VARIABLE, sys.executable)
    assert str(interpreter(tmp_path)) == sys.executable
    monkeypatch.setenv(environment.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(SpecError, match=r"FORERUN_PEERS names the Python .* there is no file"):
        interpreter(tmp_path)


def test_a_file_is_converted_once_and_its_metadata_kept(tmp_path):
    source = write_gguf(tmp_path / "tiny.Q4_1.gguf", TINY, quantization="Q4_1")
    before = open_checkpoint(source)
    for kind, close in (("BF16", 1e-2), ("Q8_0", 2e-2)):
        path = converted(source, kind, tmp_path / "made")
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
        assert converted(source, kind, tmp_path / "made").stat().st_mtime_ns == stamp


def test_files_of_one_name_in_two_places_are_two(tmp_path):
    sources = []
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        sources.append(write_gguf(tmp_path / str(seed) / "model.gguf", replace(TINY, seed=seed)))
    first, second = (converted(source, "BF16", tmp_path / "made") for source in sources)
    assert first.name == second.name == "model.BF16.gguf"
    assert first.read_bytes() != second.read_bytes()


def test_a_damaged_file_leaves_nothing_behind(tmp_path):
    source = tmp_path / "broken.gguf"
    source.write_bytes(b"GGUF of a kind")
    with pytest.raises(LoadError, match=r"broken\.gguf cannot be written as BF16"):
        converted(source, "BF16", tmp_path / "made")
    assert not [path for path in (tmp_path / "made").rglob("*") if path.is_file()]
