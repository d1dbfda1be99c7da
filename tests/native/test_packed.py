"""Packed files: what was written is read, what is damaged, cut or of another version is not, and two builders agree."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

_ext = pytest.importorskip("forerun.native._ext", reason="the native extension was not built")

from forerun.core.errors import BrokenInvariant, CapacityError
from forerun.native import packed
from forerun.native.packed import open_or_build, open_packed

ROWS, COLS = 2000, 96


def matrix():
    return np.random.default_rng(1).standard_normal((ROWS, COLS)).astype(np.float32)


def fill(writer):
    values = matrix()
    writer.vector("bias", np.arange(5, dtype=np.float32))

    def pieces():
        for at in range(0, ROWS, 64):
            part = values[at : at + 64]
            out = np.empty(_ext.packed_bytes("f32", *part.shape), np.uint8)
            _ext.pack_f32(part, out)
            yield out

    writer.matrix("m", "f32", ROWS, COLS, pieces())
    return {"weights": "f32", "notes": ["ünï"]}


def never(writer):
    raise AssertionError("built again")


def read(model):
    entry = model.matrix("m")
    raw = model.arena.view()[entry.offset : entry.offset + entry.nbytes]
    return _ext.unpack(entry.format, entry.rows, entry.cols, raw)


def good(model):
    np.testing.assert_array_equal(read(model), matrix())
    assert model.vector("bias").tolist() == [0, 1, 2, 3, 4]
    assert "m" in model
    assert "x" not in model
    assert (model.weights, model.notes) == ("f32", ("ünï",))
    return True


def test_what_was_written_is_read(tmp_path):
    place = tmp_path / "deep" / "key"
    assert open_packed(place) is None
    good(open_or_build(place, fill))
    again = open_or_build(place, never)
    good(again)
    assert again.verify()
    assert again.matrix("m").offset % 64 == 0
    assert sorted(p.name for p in place.parent.iterdir()) == ["key", "key.lock"]


@pytest.mark.parametrize("at", [0, 100, 3000, -1])
def test_damage_is_noticed_and_rebuilt(tmp_path, at):
    open_or_build(tmp_path / "k", fill)
    path = tmp_path / "k" / "weights.bin"
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
    assert open_packed(tmp_path / "k") is None
    good(open_or_build(tmp_path / "k", fill))


def test_a_flip_between_the_samples_is_found_by_the_full_check(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "_SAMPLE", 64)
    open_or_build(tmp_path / "k", fill)
    path = tmp_path / "k" / "weights.bin"
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    model = open_packed(tmp_path / "k")
    assert model is not None
    assert not model.verify()


@pytest.mark.parametrize("keep", [0, 64, -1])
def test_truncation(tmp_path, keep):
    open_or_build(tmp_path / "k", fill)
    path = tmp_path / "k" / "weights.bin"
    path.write_bytes(path.read_bytes()[:keep])
    assert open_packed(tmp_path / "k") is None
    good(open_or_build(tmp_path / "k", fill))


def spoiled(whole):
    body = whole["body"]
    yield {**whole, "digest": "0" * 64}
    yield {**whole, "body": {**body, "size": body["size"] + 64}}
    for changed in ({**body, "version": packed.VERSION + 1}, {k: v for k, v in body.items() if k != "samples"}):
        yield {"body": changed, "digest": packed._digest(changed)}
    yield from ([], {}, None, {"body": 3, "digest": ""})


def test_manifests_that_are_not_ours(tmp_path):
    open_or_build(tmp_path / "k", fill)
    path = tmp_path / "k" / "manifest.json"
    whole = path.read_text()
    for text in (*map(json.dumps, spoiled(json.loads(whole))), whole[:-5], "", "[" * 5000, "\x00"):
        path.write_text(text)
        assert open_packed(tmp_path / "k") is None, text[:100]
    path.write_text(whole)
    good(open_packed(tmp_path / "k"))
    os.remove(tmp_path / "k" / "weights.bin")
    assert open_packed(tmp_path / "k") is None


def test_a_build_that_fails_leaves_nothing(tmp_path):
    def broken(writer):
        fill(writer)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_or_build(tmp_path / "k", broken)
    assert [p.name for p in tmp_path.iterdir()] == ["k.lock"]
    good(open_or_build(tmp_path / "k", fill))


def test_writers_are_held_to_their_sizes(tmp_path):
    short = lambda writer: writer.matrix("m", "f32", 64, 64, [np.zeros(64, np.uint8)]) or {}
    with pytest.raises(BrokenInvariant, match="m was written as 64 bytes, f32 takes 16384"):
        open_or_build(tmp_path / "k", short)
    twice = lambda writer: [writer.vector("v", np.zeros(3, np.float32)) for _ in "ab"]
    with pytest.raises(BrokenInvariant, match="v was packed twice"):
        open_or_build(tmp_path / "k", twice)


def test_a_full_disk_and_full_memory_are_told(tmp_path, monkeypatch):
    def full(writer):
        raise OSError(28, "No space left on device")

    with pytest.raises(CapacityError, match="disk is full"):
        open_or_build(tmp_path / "k", full)
    open_or_build(tmp_path / "k", fill)

    def none(size):
        raise MemoryError

    monkeypatch.setattr("forerun.native.packed.ext.Arena", none, raising=False)
    with pytest.raises(CapacityError, match="take a smaller model"):
        open_packed(tmp_path / "k")


def test_old_leftovers_are_swept(tmp_path):
    (tmp_path / ".build-old").mkdir()
    (tmp_path / ".build-new").mkdir()
    os.utime(tmp_path / ".build-old", (0, 0))
    open_or_build(tmp_path / "k", fill)
    assert sorted(p.name for p in tmp_path.glob(".build*")) == [".build-new"]


BUILDER = """
import sys, time
from pathlib import Path
import numpy as np
from forerun.native.packed import open_or_build

def slow(writer):
    with open(sys.argv[2], "a") as log:
        log.write("built\\n")
    time.sleep(0.5)
    writer.vector("v", np.arange(100, dtype=np.float32))
    return {}

assert open_or_build(Path(sys.argv[1]), slow).vector("v").sum() == 4950
"""


def test_two_processes_build_once(tmp_path):
    command = [sys.executable, "-c", BUILDER, str(tmp_path / "k"), str(tmp_path / "log")]
    builders = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(120) for process in builders] == [0, 0]
    assert (tmp_path / "log").read_text() == "built\n"
