"""Files that are written whole or not at all, and the room for them."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import SafetensorError

from forerun.core.errors import CapacityError

_FULL = (errno.ENOSPC, errno.EDQUOT)
FULL = "the disk is full; make room and run the same command again, it goes on from what was saved before"


def written(path: Path, write: Callable[[Path], object], size: int = 0) -> None:
    """Let `write` make a file beside `path`, and put it in its place; CapacityError in one line if it cannot.

    `size` in bytes is what it takes, by which a full disk is known where the writer's own words do not tell.
    """
    scratch = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(scratch)
        scratch.replace(path)
    except (OSError, SafetensorError, RuntimeError) as error:
        why = FULL if size > free(path) else reason(error)
        if scratch.exists():
            scratch.unlink()
        raise CapacityError(f"{path} cannot be written: {why}") from error


def reason(error: Exception) -> str:
    """Why a file could not be written, in words."""
    code = error.errno if isinstance(error, OSError) else None
    if code in _FULL or "No space left" in str(error) or "os error 28" in str(error):
        return FULL
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error).splitlines()[0][:200]


def free(path: Path) -> int:
    """Free bytes where `path` is, or would be."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(there).free


def check_room(folder: Path, needs: Mapping[str, int]) -> None:
    """CapacityError unless what is needed, bytes by what for, fits the disk of `folder`."""
    total, there = sum(needs.values()), free(folder)
    if total > there:
        parts = ", ".join(f"{what} {size_of(count)}" for what, count in needs.items())
        raise CapacityError(f"{folder} needs about {size_of(total)} ({parts}), {size_of(there)} are free there")


def size_of(count: float) -> str:
    """Bytes for people."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}" if count < 10 * size else f"{count / size:.0f} {unit}"
    return f"{count / 1e3:.0f} kB"
