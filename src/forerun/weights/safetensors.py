"""Tensors of a Hugging Face folder: one model.safetensors or several shards with an index.

Headers are read when the folder is opened, so a missing or cut shard is found before any weight is;
tensors are read one at a time.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from forerun.core.errors import LoadError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_DTYPES = ("F32", "BF16", "F16")
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
    """A `TensorSource` over the .safetensors files of a folder."""

    def __init__(self, folder: Path, shards: Mapping[str, str]) -> None:
        self._handles = {shard: _open(folder / shard) for shard in sorted(set(shards.values()))}
        held = {shard: frozenset(handle.keys()) for shard, handle in self._handles.items()}
        for name, shard in shards.items():
            if name not in held[shard]:
                raise LoadError(
                    f"tensor {name!r} is listed in {INDEX} but absent from {folder / shard}; download again"
                )
        self.files = tuple(folder / shard for shard in self._handles)
        self._shards = dict(shards)

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

    def _slice(self, name: str) -> Any:
        return self._handles[self._shards[name]].get_slice(name)


def open_safetensors(folder: Path) -> SafetensorsSource:
    """Open a folder's weights, single file first, as transformers does; LoadError names what is missing or cut."""
    if (folder / SINGLE).is_file():
        return open_file(folder / SINGLE)
    if not (folder / INDEX).is_file():
        raise LoadError(_nothing(folder))
    listed = read_json(folder / INDEX).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise LoadError(f"{folder / INDEX} has no weight_map; download it again")
    for name, shard in listed.items():
        if not isinstance(shard, str) or Path(shard).name != shard or "\0" in shard:
            raise LoadError(f"{folder / INDEX} places {name!r} in {shard!r} (allowed: a file name in that folder)")
    return SafetensorsSource(folder, listed)


def open_file(path: Path) -> SafetensorsSource:
    """Open one .safetensors file by itself."""
    return SafetensorsSource(path.parent, dict.fromkeys(_open(path).keys(), path.name))


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise LoadError(f"{path} is missing; download the model again") from None
    except (SafetensorError, OSError, ValueError) as error:
        size = path.stat().st_size if path.is_file() else 0
        raise LoadError(f"{path} ({size} bytes) is cut short or damaged ({error}); download it again") from error


def _nothing(folder: Path) -> str:
    other = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth"))
    if other:
        return f"{folder} holds {other[0]} but no safetensors; convert it to {SINGLE} (pickles are not opened)"
    return f"{folder} has neither {SINGLE} nor {INDEX} nor a .gguf file; pass a model folder or a .gguf file"
