"""Tensors of a Hugging Face folder: one model.safetensors, or several shards with an index or with names that count.

Headers are read when the folder is opened, so a missing or cut shard is found before any weight is;
tensors are read one at a time.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from forerun.core.errors import LoadError
from forerun.weights.recognise import not_a_model, placeholder

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_DTYPES = ("F32", "BF16", "F16")
_SHARD = re.compile(r"(.+)-(\d+)-of-(\d+)\.safetensors")
_TIED = re.compile(r"(^|\.)(embed_tokens|lm_head)\.weight$")
_ROWS = 1 << 12
_LARGEST_JSON = 256 << 20  # bytes


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that must hold an object; LoadError naming it otherwise."""
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise LoadError(f"{path} has {path.stat().st_size} bytes (allowed: {_LARGEST_JSON}): not a config")
        got = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise LoadError(f"{path} is missing; download the model again") from None
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{path} is not readable JSON ({error}); download it again") from error
    if not isinstance(got, dict):
        raise LoadError(f"{path} holds a JSON {type(got).__name__} (allowed: an object); download it again")
    return got


class SafetensorsSource:
    """A `TensorSource` over .safetensors files of a folder; `index` says in which of them a tensor is.

    All that the files hold counts, listed or not. LoadError for a tensor that is listed where it is not, unless it is
    one of a tied pair, and for one that two files hold differently.
    """

    def __init__(self, folder: Path, files: Iterable[str], index: Mapping[str, str] | None = None) -> None:
        self._handles = {file: _open(folder / file) for file in sorted(files)}
        self.files = tuple(folder / file for file in self._handles)
        self._shards: dict[str, str] = {}
        index = index or {}
        for file, handle in self._handles.items():
            for name in handle.keys():  # noqa: SIM118  # it is no mapping
                if name in self._shards and not _same(self._handles[self._shards[name]], handle, name):
                    raise LoadError(
                        f"tensor {name!r} is in {folder / self._shards[name]} and differs in {file}: the files do not "
                        "belong together"
                    )
                if name not in self._shards or index.get(name) == file:
                    self._shards[name] = file
        for name, file in index.items():
            if name not in self._shards and not _TIED.search(name):
                raise LoadError(f"tensor {name!r} is listed in {INDEX} but absent from {folder / file}; download again")

    def names(self) -> frozenset[str]:
        """All tensor names."""
        return frozenset(self._shards)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, from the header."""
        return tuple(self._slice(name).get_shape())

    def load(self, name: str) -> torch.Tensor:
        """The tensor on the CPU as stored; LoadError for types other than float32, bfloat16 and float16."""
        dtype = self._slice(name).get_dtype()
        if dtype not in _DTYPES:
            raise LoadError(
                f"tensor {name!r} has type {dtype} (allowed: {', '.join(_DTYPES)}); use an unquantised model"
            )
        tensor: torch.Tensor = self._handles[self._shards[name]].get_tensor(name)
        return tensor

    def raw(self, name: str) -> None:
        """None: there are no blocks in these files."""
        return None

    def stored(self, name: str) -> tuple[str, int]:
        """Type and bytes of a tensor."""
        kind = str(self._slice(name).get_dtype())
        bits = int("".join(filter(str.isdigit, kind.partition("_")[0])) or 8)
        return kind, math.prod(self.shape(name)) * bits // 8

    def chunks(self, name: str) -> Iterator[torch.Tensor]:
        """The tensor's rows as float32, some thousand at a time."""
        rows = self._slice(name)
        for at in range(0, rows.get_shape()[0], _ROWS):
            yield rows[at : at + _ROWS].float()

    def _slice(self, name: str) -> Any:
        return self._handles[self._shards[name]].get_slice(name)


def open_safetensors(folder: Path) -> SafetensorsSource:
    """Open a folder's weights, single file first, as transformers does; LoadError names what is missing or cut."""
    if (folder / SINGLE).is_file():
        return open_file(folder / SINGLE)
    if not (folder / INDEX).is_file():
        return SafetensorsSource(folder, _unlisted(folder))
    listed = read_json(folder / INDEX).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise LoadError(f"{folder / INDEX} has no weight_map; download it again")
    for name, shard in listed.items():
        if not isinstance(shard, str) or Path(shard).name != shard or "\0" in shard:
            raise LoadError(f"{folder / INDEX} places {name!r} in {shard!r} (allowed: a file name in that folder)")
    return SafetensorsSource(folder, set(listed.values()), listed)


def beginning(path: Path) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as file:
        return file.read(64)


def open_file(path: Path) -> SafetensorsSource:
    """Open one .safetensors file by itself."""
    return SafetensorsSource(path.parent, [path.name])


def _unlisted(folder: Path) -> list[str]:
    """The weights of a folder without an index: shards whose names say that all are there, or a single file."""
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    shards = [match for name in found if (match := _SHARD.fullmatch(name))]
    if shards and len(shards) == len(found) and len({(match[1], match[3]) for match in shards}) == 1:
        count, have = int(shards[0][3]), {int(match[2]) for match in shards}
        if missing := [i for i in range(1, count + 1) if i not in have]:
            shown = ", ".join(map(str, missing[:5])) + ("…" if len(missing) > 5 else "")
            raise LoadError(
                f"{folder} has {len(have)} of {count} shards of {shards[0][1]} and no {INDEX}; part {shown} is "
                "missing: download the model again"
            )
        return found
    if len(found) == 1:
        return found
    if found:
        raise LoadError(
            f"{folder} has {len(found)} .safetensors files ({', '.join(found[:5])}) and no {INDEX} that says which "
            f"belong together; download it, or join them as {SINGLE}"
        )
    if what := not_a_model(folder):
        raise LoadError(f"{folder} holds {what}")
    raise LoadError(f"{folder} has neither {SINGLE} nor {INDEX} nor a .gguf file; pass a model folder or a .gguf file")


def _same(a: Any, b: Any, name: str) -> bool:
    mine, other = a.get_slice(name), b.get_slice(name)
    if mine.get_shape() != other.get_shape() or mine.get_dtype() != other.get_dtype():
        return False
    return bool(torch.equal(a.get_tensor(name), b.get_tensor(name)))


def _open(path: Path) -> Any:
    try:
        if path.is_file() and (what := placeholder(beginning(path))):
            raise LoadError(f"{path} is {what}")
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise LoadError(f"{path} is missing; download the model again") from None
    except (SafetensorError, OSError, ValueError) as error:
        size = path.stat().st_size if path.is_file() else 0
        raise LoadError(f"{path} ({size} bytes) is cut short or damaged ({error}); download it again") from error
