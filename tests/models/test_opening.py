"""The cache of packed models: when it serves, when it must not, and what it holds besides weights."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

pytest.importorskip("forerun.native._ext", reason="the native extension was not built")

from forerun.core.errors import LoadError, SpecError
from forerun.models.opening import open_model, pack_now, tokenizer_of, words_of
from forerun.testing.tiny import Tiny, write_folder, write_gguf
from forerun.weights.folder import open_checkpoint

WIDE = dict(hidden=64, heads=4, kv_heads=2, head_dim=16, inner=96)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def sealed(monkeypatch):
    """After a call of it, opening a source is a failure."""

    def closed(*args, **kwargs):
        raise AssertionError("the source was opened")

    def seal():
        for name in ("weights.folder.open_checkpoint", "weights.gguf.open_gguf", "text.from_gguf.from_gguf"):
            monkeypatch.setattr(f"forerun.{name}", closed)
        for name in ("text.from_folder.from_folder", "models.packing.pack_model", "models.opening._content_key"):
            monkeypatch.setattr(f"forerun.{name}", closed)

    return seal


def gguf(path, **changes):
    return write_gguf(path, Tiny(**WIDE, **changes), quantization="Q8_0")


def kept(home):
    return sorted(p.name for p in (home / "packed").iterdir() if p.is_dir() and p.name != "sources")


def same(a, b):
    assert a.meta == b.meta
    assert a.entries == b.entries
    assert (a.arena.view() == b.arena.view()).all()


@pytest.mark.parametrize("kind", ["folder", "gguf", "folder with a gguf"])
def test_a_warm_start_never_opens_the_source(kind, tmp_path, sealed):
    if kind == "folder":
        path = write_folder(tmp_path / "m", Tiny())
    else:
        (tmp_path / "m").mkdir()
        path = gguf(tmp_path / "m" / "a.gguf")
        path = path.parent if kind == "folder with a gguf" else path
    tokenizer = tokenizer_of(open_checkpoint(path))
    cold = open_model(path)
    for file in path.iterdir() if path.is_dir() else [path]:
        file.chmod(0)
    sealed()
    warm = open_model(path)
    same(cold, warm)
    assert warm.name == cold.name == (path.name if kind != "folder with a gguf" else "a.gguf")
    words = words_of(warm)
    assert words.tokenizer.state() == tokenizer.state()
    assert words.encode("the thing", bos=True) == tokenizer.encode("the thing", bos=True)
    assert words.has_template
    assert words.chat([{"role": "user", "content": "hi"}])
    assert warm.eos_ids == {259}


def test_each_option_is_packed_apart(tmp_path, home, sealed):
    path = gguf(tmp_path / "a.gguf")
    options = ("auto", "f32", "bf16", "int8", "q4", "nf4")
    cold = {weights: open_model(path, weights) for weights in options}
    assert len(kept(home)) == len(options)
    sealed()
    for weights in options:
        assert open_model(path, weights).weights == weights
        same(open_model(path, weights), cold[weights])


def test_the_same_file_under_another_path_shares(tmp_path, home):
    first = open_model(gguf(tmp_path / "a.gguf"))
    shutil.copy(tmp_path / "a.gguf", tmp_path / "b.gguf")
    (tmp_path / "link").symlink_to(tmp_path / "a.gguf")
    other = open_model(tmp_path / "b.gguf")
    same(first, other)
    assert (first.name, other.name) == ("a.gguf", "b.gguf")
    same(first, open_model(tmp_path / "link"))
    write_folder(tmp_path / "m")
    shutil.copytree(tmp_path / "m", tmp_path / "n")
    same(open_model(tmp_path / "m"), open_model(tmp_path / "n"))
    assert len(kept(home)) == 2


def test_a_change_that_keeps_size_and_fingerprint_is_noticed(tmp_path, home):
    """The fingerprint samples the weights; the cache must not."""
    path = gguf(tmp_path / "a.gguf", vocab=900, layers=4)
    first = open_model(path)
    raw = bytearray(path.read_bytes())
    start = open_checkpoint(path).tensors._file.tensors["token_embd.weight"].start + 9000
    raw[start : start + 8] = b"\1\2\3\4\5\6\7\10"
    path.write_bytes(raw)
    changed = open_model(path)
    assert changed.fingerprint == first.fingerprint
    assert (changed.arena.view() != first.arena.view()).any()
    assert len(kept(home)) == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer_config.json", '{"bos_token": "<|im_start|>"}'),
        ("generation_config.json", '{"eos_token_id": [259, 7]}'),
        ("chat_template.jinja", "{{ messages[0].content }}"),
    ],
)
def test_files_beside_the_weights_count(name, text, tmp_path, home):
    path = write_folder(tmp_path / "m")
    first = open_model(path)
    (path / name).write_text(text)
    changed = open_model(path)
    assert changed.meta != first.meta
    same(changed, open_model(path))
    (path / "README.md").write_text("does not count")
    same(changed, open_model(path))
    assert len(kept(home)) == 2


def test_a_damaged_cache_is_rebuilt(tmp_path, home):
    path = gguf(tmp_path / "a.gguf")
    first = open_model(path)
    folder = home / "packed" / kept(home)[0]
    for spoil in (
        lambda: os.truncate(folder / "weights.bin", 100),
        lambda: (folder / "manifest.json").write_text("{"),
        lambda: shutil.rmtree(folder),
        lambda: [file.write_text("[]") for file in (home / "packed" / "sources").iterdir()],
        lambda: [file.write_text('{"key": "../..", "files": {}}') for file in (home / "packed" / "sources").iterdir()],
        lambda: shutil.rmtree(home),
    ):
        spoil()
        same(open_model(path), first)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_cannot_be_written(tmp_path, home):
    home.mkdir()
    home.chmod(0o500)
    _for_this_run_alone(tmp_path)


def test_a_place_that_is_a_file(tmp_path, home):
    home.write_text("")
    _for_this_run_alone(tmp_path)


def _for_this_run_alone(tmp_path):
    path = gguf(tmp_path / "a.gguf")
    model = open_model(path)
    assert "packed for this run alone" in model.notes[-1]
    assert (model.arena.view() == pack_now(open_checkpoint(path), "auto").arena.view()).all()
    assert words_of(model).size == 260


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(SpecError, match="unknown weights 'q5'"):
        open_model(gguf(tmp_path / "a.gguf"), "q5")
    with pytest.raises(LoadError, match="does not exist"):
        open_model(tmp_path / "none.gguf")
    with pytest.raises(LoadError, match=r"tokenizer\.json is missing"):
        open_model(write_folder(tmp_path / "m", tokenizer=False))
    bare = pack_now(open_checkpoint(tmp_path / "m"), "bf16")
    with pytest.raises(LoadError, match="m was packed without a tokenizer"):
        words_of(bare)


def test_two_threads_open_one_model(tmp_path, home):
    from concurrent.futures import ThreadPoolExecutor

    path = gguf(tmp_path / "a.gguf")
    with ThreadPoolExecutor(4) as threads:
        models = list(threads.map(open_model, [path] * 4))
    for model in models[1:]:
        same(models[0], model)
    assert len(kept(home)) == 1
    assert torch.is_inference_mode_enabled() is False
