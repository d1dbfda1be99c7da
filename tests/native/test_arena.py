"""The memory that weights lie in: aligned, zeroed, filled from files, refused in time."""

from __future__ import annotations

import gc

import numpy as np
import pytest

_ext = pytest.importorskip("forerun.native._ext", reason="the native extension was not built")


@pytest.mark.parametrize("size", [0, 1, 4096, (2 << 20) + 1])
def test_memory_is_aligned_zeroed_and_outlives_its_arena(size):
    arena = _ext.Arena(size)
    view = arena.view()
    assert (arena.nbytes, view.size, view.dtype) == (size, size, np.uint8)
    if size:
        assert view.ctypes.data % (2 << 20) == 0
    assert not view.any()
    view[:] = 7
    del arena
    gc.collect()
    assert int(view.sum()) == 7 * size


@pytest.mark.parametrize("size", [1 << 45, 1 << 62, (1 << 64) - 1])
def test_what_cannot_be_had_is_a_memory_error(size):
    with pytest.raises(MemoryError):
        _ext.Arena(size)


@pytest.mark.parametrize("size", [100, 40 << 20])
def test_reads_a_file_from_an_offset(tmp_path, size):
    data = np.random.default_rng(0).integers(0, 256, size + 10, np.uint8)
    data.tofile(tmp_path / "data")
    arena = _ext.Arena(size)
    arena.read(str(tmp_path / "data"), 10)
    assert (arena.view() == data[10:]).all()
    with pytest.raises(OSError, match=rf"data has {size + 10} bytes, {size} are needed from byte 11"):
        arena.read(str(tmp_path / "data"), 11)
    with pytest.raises(OSError, match="cut short"):
        arena.read(str(tmp_path / "data"), (1 << 64) - 1)


def test_files_that_cannot_be_read_are_named(tmp_path):
    arena = _ext.Arena(10)
    with pytest.raises(OSError, match=r"none.*No such file"):
        arena.read(str(tmp_path / "none"), 0)
    with pytest.raises(OSError, match=str(tmp_path)):
        arena.read(str(tmp_path), 0)
