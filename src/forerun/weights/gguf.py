"""An open GGUF file: its metadata at once, its tensors one at a time out of a memory map.

Names and row order are the file's own here; `names.py` turns them into Hugging Face's.
"""

import mmap
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from forerun.core.errors import LoadError
from forerun.weights.dequant import unpack
from forerun.weights.gguf_header import Header, TensorInfo, parse


class GGUFFile:
    """A GGUF file opened and checked; the map stays open as long as the object lives."""

    def __init__(self, path: Path, data: mmap.mmap | bytes, header: Header) -> None:
        self.path = path
        self._data = data
        self._header = header

    @property
    def metadata(self) -> Mapping[str, object]:
        """Every key of the file with its value: str, int, float, bool, or a list of one of those."""
        return self._header.metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its GGUF name."""
        return self._header.tensors

    @property
    def version(self) -> int:
        """The format version, 2 or 3."""
        return self._header.version

    @property
    def size(self) -> int:
        """File size in bytes."""
        return len(self._data)

    def head(self) -> bytes:
        """The header's bytes, up to where tensor data begins."""
        return self._data[: self._header.data_start]

    def peek(self, start: int, count: int) -> bytes:
        """At most `count` bytes from `start`."""
        return self._data[start : start + count]

    def load(self, name: str) -> torch.Tensor:
        """The tensor of that GGUF name, shaped as `tensors` says; float types as stored, others as float32."""
        info = self.tensors[name]
        return unpack(self.raw(name), info.shape, info.kind)

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes [nbytes] of the tensor of that GGUF name, not copied and not writable."""
        info = self.tensors[name]
        return np.frombuffer(self._data, np.uint8, info.size, info.start)


def open_gguf(path: Path) -> GGUFFile:
    """Open a GGUF file and check all of its header; LoadError says what is wrong with it."""
    try:
        with path.open("rb") as file:
            empty = file.seek(0, 2) == 0
            data = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise LoadError(f"cannot read {path}: {error}") from error
    return GGUFFile(path, data, parse(data, str(path)))
