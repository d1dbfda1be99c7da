"""Reads a GGUF header, trusting nothing in it.

Every count and length is compared with what is left of the file before anything is allocated, and every
tensor's bytes must lie inside the file, without overlap. A cut download is therefore found here, by
name and with both sizes, and never while a model is half built.
Format: github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap

import numpy as np
from gguf.constants import GGMLQuantizationType

from forerun.core.errors import LoadError
from forerun.weights.dequant import kind_of, nbytes
from forerun.weights.recognise import placeholder

_SCALARS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_BOOL, _STRING, _ARRAY = 7, 8, 9
_LONGEST_ARRAY = 1 << 22  # elements; the largest vocabularies in use have about 300,000 tokens
_DEEPEST = 4  # arrays within arrays
_LONGEST_NAME = 1024
_OLDER = {b"GGML", b"lmgg", b"GGMF", b"fmgg", b"GGJT", b"tjgg", b"GGLA", b"algg"}
_AGAIN = "the file is cut short or damaged: download it again"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: shape row-major, `start` and `size` in bytes from the beginning of the file."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Header:
    """A whole GGUF header: metadata by key, tensors by their GGUF name, and where the data begins (bytes).

    A value that should be text and is not UTF-8 stays bytes, for its reader to judge; arrays of arrays, which no model
    needs, are skipped. `notes` tell of both.
    """

    version: int
    metadata: dict[str, object]
    tensors: dict[str, TensorInfo]
    data_start: int
    notes: tuple[str, ...] = ()


class _Cursor:
    def __init__(self, data: mmap | bytes, where: str) -> None:
        self.data, self.where, self.size, self.at, self.part = data, where, len(data), 0, "metadata"
        self.notes: list[str] = []
        self._nested = 0

    def skip(self, count: int) -> int:
        start = self.at
        if count > self.size - start:
            raise LoadError(
                f"{self.where}: {self.part} needs {start + count} bytes, the file has {self.size}; {_AGAIN}"
            )
        self.at = start + count
        return start

    def number(self, fmt: str, width: int) -> int:
        return int(struct.unpack_from(fmt, self.data, self.skip(width))[0])

    def u32(self) -> int:
        return self.number("<I", 4)

    def u64(self) -> int:
        return self.number("<Q", 8)

    def name(self, what: str) -> str:
        got = self.text()
        if isinstance(got, bytes):
            raise LoadError(f"{self.where}: {what} is not UTF-8 text; {_AGAIN}")
        if len(got) > _LONGEST_NAME:
            raise LoadError(f"{self.where}: {what} has {len(got)} characters (allowed: {_LONGEST_NAME}); {_AGAIN}")
        return got

    def text(self) -> str | bytes:
        length = self.u64()
        start = self.skip(length)
        raw = self.data[start : start + length]
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return raw

    def value(self, key: str, kind: int) -> object:
        if kind == _STRING:
            got = self.text()
            if isinstance(got, bytes):
                self.notes.append(f"metadata {key!r} is not UTF-8 text")
            return got
        if kind == _ARRAY:
            inner, count = self.u32(), self.u64()
            return self.array(key, inner, count)
        if kind not in _SCALARS:
            raise LoadError(f"{self.where}: metadata {key!r} has value type {kind} (allowed: 0 to 12); {_AGAIN}")
        dtype = np.dtype(_SCALARS[kind])
        number = np.frombuffer(self.data, dtype, 1, self.skip(dtype.itemsize))[0].item()
        return bool(number) if kind == _BOOL else number

    def array(self, key: str, inner: int, count: int, depth: int = 1) -> list[object]:
        known = inner in _SCALARS or inner == _STRING or (inner == _ARRAY and depth < _DEEPEST)
        if count > _LONGEST_ARRAY or (count and not known):
            raise LoadError(
                f"{self.where}: metadata {key!r} is an array of {count} values of type {inner} (allowed: numbers, "
                f"strings and arrays of them, at most {_LONGEST_ARRAY}); {_AGAIN}"
            )
        if not count:
            return []
        if inner in (_STRING, _ARRAY):
            if count * 8 > self.size - self.at:  # each has an 8-byte length: refuse before looping
                self.skip(count * 8)
            return [self.text() if inner == _STRING else self._skipped(key, depth) for _ in range(count)]
        dtype = np.dtype(_SCALARS[inner])
        values = np.frombuffer(self.data, dtype, count, self.skip(count * dtype.itemsize))
        return list((values != 0).tolist() if inner == _BOOL else values.tolist())

    def _skipped(self, key: str, depth: int) -> object:
        """None for an array within an array, which is gone over; all of them together are bounded like one."""
        if (said := f"metadata {key!r} is an array of arrays") not in self.notes:
            self.notes.append(said)
        inner, count = self.u32(), self.u64()
        self._nested += 1 + count
        self.array(key, inner, count if self._nested <= _LONGEST_ARRAY else _LONGEST_ARRAY + 1, depth + 1)
        return None


def _check_magic(data: mmap | bytes, where: str) -> None:
    head = bytes(data[:9])
    if not head:
        raise LoadError(f"{where} is empty (0 bytes); download it again")
    if head[:4] == b"GGUF" and len(data) >= 24:
        return
    if len(data) < 24:
        raise LoadError(f"{where} is too short for a GGUF file: {len(data)} bytes, starting {head!r}; {_AGAIN}")
    if what := placeholder(bytes(data[:64])):
        raise LoadError(f"{where} is {what}")
    found = f"{where} is not a GGUF file: it starts with {head[:4]!r}, not b'GGUF'"
    if head[:4] in _OLDER:
        raise LoadError(f"{found}: an older GGML format, which cannot be read; get the model as GGUF")
    if head[:4] == b"FUGG":
        raise LoadError(f"{found}: byte-swapped? get the file again from its publisher")
    if head[8:9] == b"{" and struct.unpack("<Q", head[:8])[0] <= len(data) - 8:
        raise LoadError(f"{found}: it looks like a safetensors file; pass the folder that holds its config.json")
    raise LoadError(f"{found}; pass a .gguf file or a Hugging Face folder")


def _version(cursor: _Cursor) -> int:
    version = cursor.u32()
    if version & 0xFFFF == 0 and version:
        raise LoadError(
            f"{cursor.where} is a big-endian GGUF file (version reads as {version}): "
            "only little-endian files can be read; get the little-endian one"
        )
    if version not in (2, 3):
        raise LoadError(f"{cursor.where} has GGUF version {version} (allowed: 2, 3); convert the model again")
    return version


def _tensor(cursor: _Cursor) -> tuple[str, tuple[int, ...], GGMLQuantizationType, int]:
    name = cursor.name("a tensor name")
    dims = cursor.u32()
    if not 1 <= dims <= 4:
        raise LoadError(f"{cursor.where}: tensor {name!r} has {dims} dimensions (allowed: 1 to 4); {_AGAIN}")
    shape = tuple(cursor.u64() for _ in range(dims))[::-1]
    if 0 in shape:
        raise LoadError(f"{cursor.where}: tensor {name!r} has shape {list(shape)}: no axis may be 0; {_AGAIN}")
    return name, shape, kind_of(name, cursor.u32()), cursor.u64()


def _alignment(metadata: dict[str, object], where: str) -> int:
    got = metadata.get("general.alignment", 32)
    if not isinstance(got, int) or isinstance(got, bool) or not 0 < got <= 1 << 20 or got & (got - 1):
        raise LoadError(f"{where}: general.alignment is {got!r} (allowed: a power of two); {_AGAIN}")
    return got


def _placed(entries: Iterator[TensorInfo], where: str, size: int, start: int) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for info in entries:
        if info.name in tensors:
            raise LoadError(f"{where}: tensor {info.name!r} is listed twice; {_AGAIN}")
        if info.start + info.size > size:
            raise LoadError(
                f"{where}: tensor {info.name!r} ends at byte {info.start + info.size}, the file has {size}; {_AGAIN}"
            )
        tensors[info.name] = info
    end = start
    for info in sorted(tensors.values(), key=lambda t: t.start):
        if info.start < end:
            raise LoadError(f"{where}: tensor {info.name!r} overlaps the one before it; {_AGAIN}")
        end = info.start + info.size
    return tensors


def parse(data: mmap | bytes, where: str) -> Header:
    """The header of a GGUF file given whole; `where` names it in errors. LoadError for anything out of order."""
    _check_magic(data, where)
    cursor = _Cursor(data, where)
    cursor.skip(4)
    version, tensor_count, pair_count = _version(cursor), cursor.u64(), cursor.u64()
    least = pair_count * 13 + tensor_count * 32  # the shortest possible pairs and tensor entries
    if least > cursor.size - cursor.at:
        cursor.skip(least)
    metadata: dict[str, object] = {}
    for _ in range(pair_count):
        key = cursor.name("a metadata key")
        if key in metadata:
            raise LoadError(f"{where}: metadata {key!r} is listed twice; {_AGAIN}")
        metadata[key] = cursor.value(key, cursor.u32())
    cursor.part = "the tensor table"
    entries = [_tensor(cursor) for _ in range(tensor_count)]
    step = _alignment(metadata, where)
    start = -(-cursor.at // step) * step
    infos = (TensorInfo(n, s, k, start + at, nbytes(n, s, k)) for n, s, k, at in entries)
    notes = tuple(f"{said} and is not read" for said in cursor.notes)
    return Header(version, metadata, _placed(infos, where, cursor.size, start), start, notes)
