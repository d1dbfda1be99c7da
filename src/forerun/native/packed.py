"""Packed weights on disk: a folder with weights.bin and manifest.json, made whole or not at all, and checked when read.

It is written beside its place and renamed into it, under a lock, so that of two processes that want the same one the
second waits and reads. Sizes, the manifest's own digest and samples of the weights are checked each time; `verify`
checks every byte.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from forerun.core.errors import BrokenInvariant, CapacityError, LoadError
from forerun.core.locked import locked
from forerun.native import ext

if TYPE_CHECKING:
    from forerun.native._ext import Arena

VERSION = 1
"""Of the layout in csrc/formats.h and of these files; another one is not read."""
VECTOR = "vector"
_ALIGNED = 64
_SAMPLES, _SAMPLE = 64, 4096  # windows of weights.bin that are checked each time, bytes of each
_STALE_S = 3600  # a build that is older than this has died
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Entry:
    """A packed matrix [rows, cols] of a format, or (format "vector", rows 1) a float32 vector; where in weights.bin."""

    format: str
    rows: int
    cols: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class PackedModel:
    """Packed weights in memory. `meta` is whatever its writer wanted kept, in JSON values."""

    arena: Arena
    entries: Mapping[str, Entry]
    meta: Mapping[str, Any]
    checksum: int
    name: str = ""

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    @property
    def config(self) -> Mapping[str, object]:
        """The model's config with Hugging Face keys."""
        return cast(Mapping[str, object], self.meta["config"])

    @property
    def weights(self) -> str:
        """The option it was packed with: auto, f32, bf16, int8, q4, nf4."""
        return str(self.meta["weights"])

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the checkpoint it was packed from."""
        return str(self.meta["fingerprint"])

    @property
    def eos_ids(self) -> frozenset[int]:
        """The ends that the checkpoint names; join with the tokenizer's."""
        return frozenset(self.meta["eos_ids"])

    @property
    def formats(self) -> Mapping[str, int]:
        """How many matrices are in which format."""
        return cast(Mapping[str, int], self.meta["formats"])

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should be told of its files, in sentences."""
        return tuple(self.meta["notes"])

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why matrices are in the format that they are in, where that is not simply what was asked for."""
        return tuple(self.meta["reasons"])

    def matrix(self, name: str) -> Entry:
        """Where a matrix lies in the arena."""
        return self.entries[name]

    def vector(self, name: str) -> Floats:
        """A vector, as a view."""
        entry = self.entries[name]
        return self.arena.view()[entry.offset : entry.offset + entry.nbytes].view(np.float32)

    def verify(self) -> bool:
        """Whether every byte is as it was written; reads all of it."""
        return _checksum(self.arena.view()) == self.checksum


class Writer:
    """Writes entries one after another; nothing is held in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.entries: dict[str, Entry] = {}
        self.size = 0
        self.checksum = 0

    def matrix(self, name: str, format: str, rows: int, cols: int, pieces: Iterable[Bytes]) -> None:
        """A packed matrix [rows, cols] in pieces of whole strips, in order."""
        start = self.size
        for piece in pieces:
            self._write(piece)
        expected = ext.packed_bytes(format, rows, cols)
        if self.size - start != expected:
            raise BrokenInvariant(f"{name} was written as {self.size - start} bytes, {format} takes {expected}")
        self._enter(name, Entry(format, rows, cols, start, expected))

    def vector(self, name: str, values: Floats) -> None:
        """A vector of floats."""
        start = self.size
        raw = np.ascontiguousarray(values, np.float32).view(np.uint8)
        self._write(raw)
        self._write(np.zeros(-raw.size % _ALIGNED, np.uint8))
        self._enter(name, Entry(VECTOR, 1, values.size, start, raw.size))

    def _enter(self, name: str, entry: Entry) -> None:
        if name in self.entries:
            raise BrokenInvariant(f"{name} was packed twice")
        self.entries[name] = entry

    def _write(self, piece: Bytes) -> None:
        self._file.write(piece.data)
        self.size += piece.size
        self.checksum = zlib.crc32(piece.data, self.checksum)


Fill = Callable[[Writer], Mapping[str, Any]]
"""Writes all entries and returns the meta."""


def open_or_build(directory: Path, fill: Fill) -> PackedModel:
    """The packed model in `directory`, built by `fill` if there is none or it is damaged.

    OSError if the place cannot be written, CapacityError if disk or memory are too small; what `fill` raises passes.
    """
    found = open_packed(directory)
    if found is not None:
        return found
    directory.parent.mkdir(parents=True, exist_ok=True)
    with locked(directory.parent / f"{directory.name}.lock"):
        found = open_packed(directory)  # while we waited
        if found is None:
            _build(directory, fill)
            found = open_packed(directory)
    if found is None:
        raise LoadError(f"{directory} was just written and does not read back: is the disk failing?")
    return found


def open_packed(directory: Path) -> PackedModel | None:
    """The packed model in `directory`, read into memory; None if there is none, of another version, or damaged.

    CapacityError if there is no memory for it.
    """
    weights = directory / "weights.bin"
    body = _manifest(directory / "manifest.json")
    try:
        if body is None or weights.stat().st_size != body["size"]:
            return None
        entries = {name: Entry(**entry) for name, entry in body["entries"].items()}
        size, samples, checksum, meta = body["size"], body["samples"], body["checksum"], body["meta"]
    except (OSError, KeyError, TypeError, AttributeError):
        return None
    try:
        arena = ext.Arena(size)
    except MemoryError:
        raise CapacityError(
            f"the packed weights take {size / 2**20:.0f} MiB, more than this process can have: take a smaller model or "
            "smaller weights (int8, q4)"
        ) from None
    try:
        arena.read(str(weights), 0)
    except OSError:
        return None
    return PackedModel(arena, entries, meta, checksum) if _samples(arena.view()) == samples else None


def _build(directory: Path, fill: Fill) -> None:
    _sweep(directory.parent)
    scratch = Path(tempfile.mkdtemp(prefix=".build-", dir=directory.parent))
    try:
        with (scratch / "weights.bin").open("wb") as file:
            writer = Writer(file)
            meta = dict(fill(writer))
        body = {
            "version": VERSION,
            "size": writer.size,
            "checksum": writer.checksum,
            "samples": _samples(np.memmap(scratch / "weights.bin", np.uint8, "r")),
            "entries": {name: asdict(entry) for name, entry in writer.entries.items()},
            "meta": meta,
        }
        (scratch / "manifest.json").write_text(json.dumps({"body": body, "digest": _digest(body)}), encoding="utf-8")
        if directory.exists():  # damaged: out of the way first, a folder cannot be replaced by another
            os.rename(directory, scratch / "damaged")
        os.rename(scratch, directory)
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise CapacityError(
                f"the disk is full under {directory.parent}, where packed weights are kept; free some space, or set "
                "FORERUN_HOME"
            ) from error
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    shutil.rmtree(directory / "damaged", ignore_errors=True)


def _manifest(path: Path) -> dict[str, Any] | None:
    try:
        whole = json.loads(path.read_bytes())
        body = whole["body"]
        good = body["version"] == VERSION and whole["digest"] == _digest(body)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return cast(dict[str, Any], body) if good else None


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _samples(data: Bytes) -> int:
    """A checksum of windows all over the file, its first and its last included."""
    last = max(0, data.size - _SAMPLE)
    check = 0
    for i in range(_SAMPLES):
        at = last * i // (_SAMPLES - 1)
        check = zlib.crc32(data[at : at + _SAMPLE].data, check)
    return check


def _checksum(data: Bytes) -> int:
    check = 0
    for at in range(0, data.size, 1 << 24):
        check = zlib.crc32(data[at : at + (1 << 24)].data, check)
    return check


def _sweep(folder: Path) -> None:
    """Remove what builds that were killed have left."""
    for left in folder.glob(".build-*"):
        try:
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left, ignore_errors=True)
        except OSError:  # swept by another process
            continue
