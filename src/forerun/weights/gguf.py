"""An open GGUF model: its metadata at once, its tensors one at a time out of memory maps, whether it lies in one file
or is split into several.

Names and row order are the file's own here; `names.py` turns them into Hugging Face's.
"""

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from forerun.core.errors import LoadError
from forerun.weights.dequant import unpack
from forerun.weights.gguf_header import Header, TensorInfo, parse
from forerun.weights.parts import parts_beside

_SAME = ("general.architecture", "general.name")  # keys that later parts need not have
_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"


@dataclass(frozen=True, slots=True)
class _Part:
    """One file, mapped, and its header."""

    path: Path
    data: mmap.mmap | bytes
    header: Header


class GGUFFile:
    """A GGUF model opened and checked; the maps stay open as long as it lives. The first file has the metadata."""

    def __init__(self, parts: list[_Part]) -> None:
        self._parts = parts
        self._holder = {name: part for part in parts for name in part.header.tensors}
        self._tensors = {name: part.header.tensors[name] for name, part in self._holder.items()}

    @property
    def path(self) -> Path:
        """The file, or the first of several."""
        return self._parts[0].path

    @property
    def files(self) -> tuple[Path, ...]:
        """All files, in order."""
        return tuple(part.path for part in self._parts)

    @property
    def metadata(self) -> Mapping[str, object]:
        """Every key of the file with its value: str, int, float, bool, or a list of one of those."""
        return self._parts[0].header.metadata

    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd in the metadata, and was left out."""
        return self._parts[0].header.notes

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its GGUF name."""
        return self._tensors

    @property
    def version(self) -> int:
        """The format version, 2 or 3."""
        return self._parts[0].header.version

    def head(self) -> bytes:
        """The header's bytes, up to where tensor data begins, of the first file."""
        return self._parts[0].data[: self._parts[0].header.data_start]

    def samples(self, count: int) -> list[bytes]:
        """What tells this model from others: of each file its header and size, and `count` bytes at three places."""
        found = []
        for part in self._parts:
            head, end = part.data[: part.header.data_start], len(part.data)
            start = len(head)
            found.append(head + str(end).encode())
            found += [part.data[at : at + count] for at in (start, (start + end) // 2, max(start, end - count))]
        return found

    def load(self, name: str) -> torch.Tensor:
        """The tensor of that GGUF name, shaped as `tensors` says; float types as stored, others as float32."""
        info = self.tensors[name]
        return unpack(self.raw(name), info.shape, info.kind)

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes [nbytes] of the tensor of that GGUF name, not copied and not writable."""
        info = self.tensors[name]
        return np.frombuffer(self._holder[name].data, np.uint8, info.size, info.start)


def open_gguf(path: Path) -> GGUFFile:
    """Open a GGUF file, and all parts of a split one whose first it is; LoadError says what is wrong with them."""
    first = _open(path)
    count, number = _split(first, _COUNT, 1), _split(first, _NUMBER, 0)
    if count <= 1:
        return GGUFFile([first])
    files = parts_beside(path, number + 1, count)
    parts = [first, *map(_open, files[1:])]
    for i, part in enumerate(parts):
        _check_part(part, i, parts)
    held = sum(len(part.header.tensors) for part in parts)
    if held != (expected := _split(first, _TENSORS, held)):
        raise LoadError(
            f"{path} is of a model of {expected} tensors, its {count} parts hold {held}: they are not of one model"
        )
    return GGUFFile(parts)


def _open(path: Path) -> _Part:
    try:
        with path.open("rb") as file:
            empty = file.seek(0, 2) == 0
            data = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise LoadError(f"cannot read {path}: {error}") from error
    return _Part(path, data, parse(data, str(path)))


def _split(part: _Part, key: str, default: int) -> int:
    got = part.header.metadata.get(key, default)
    if not isinstance(got, int) or isinstance(got, bool) or got < 0:
        raise LoadError(f"{part.path}: {key} is {repr(got)[:80]} (allowed: whole numbers from 0); download it again")
    return got


def _check_part(part: _Part, i: int, parts: list[_Part]) -> None:
    """LoadError unless a file is part i of the model that the first of `parts` begins."""
    first = parts[0]
    said: dict[str, object] = {_NUMBER: i, _COUNT: len(parts), _TENSORS: _split(first, _TENSORS, 0)}
    said |= {key: first.header.metadata.get(key) for key in _SAME if key in part.header.metadata}
    for key, expected in said.items():
        if (got := part.header.metadata.get(key, 0)) != expected:
            raise LoadError(
                f"{part.path} is not part {i + 1} of the model in {first.path}: {key} is {repr(got)[:80]}, expected "
                f"{repr(expected)[:80]}; take all parts from one place"
            )
    for other in parts[:i]:
        if twice := sorted(set(part.header.tensors) & set(other.header.tensors)):
            raise LoadError(f"{part.path} and {other.path} both hold {twice[0]!r}: they are not parts of one model")
