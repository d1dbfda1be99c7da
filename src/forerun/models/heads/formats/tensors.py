"""The tensors of a head's folder, whatever they are kept in."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from forerun.core.errors import LoadError
from forerun.weights.safetensors import INDEX, SINGLE, read_json

PICKLES = ("pytorch_model.bin", "medusa_lm_head.pt")
NAMES = (SINGLE, "medusa_lm_head.safetensors", "head.safetensors")


def tensors_in(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder: safetensors, whole or in shards, else a pickle, loaded as nothing but tensors."""
    for name in NAMES:
        if (folder / name).is_file():
            return _safetensors(folder / name)
    if (folder / INDEX).is_file():
        shards = read_json(folder / INDEX).get("weight_map")
        if not isinstance(shards, dict) or any(Path(str(shard)).name != shard for shard in shards.values()):
            raise LoadError(f"{folder / INDEX} has no usable weight_map; download it again")
        return {k: v for shard in sorted(set(shards.values())) for k, v in _safetensors(folder / shard).items()}
    for name in PICKLES:
        if (folder / name).is_file():
            return _pickle(folder / name)
    lone = sorted(folder.glob("*.safetensors"))
    if len(lone) == 1:
        return _safetensors(lone[0])
    raise LoadError(f"{folder} holds no weights of a head: none of {', '.join((*NAMES, INDEX, *PICKLES))}")


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        found: dict[str, Tensor] = load_file(path)
        return found
    except (SafetensorError, OSError, ValueError) as error:
        raise LoadError(f"{path} is cut short or damaged ({error}); download it again") from error


def _pickle(path: Path) -> dict[str, Tensor]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, ValueError) as error:
        raise LoadError(f"{path} cannot be loaded as tensors alone ({error}); a safetensors file is safer") from error
    if not isinstance(found, Mapping) or not all(isinstance(k, str) for k in found):
        raise LoadError(f"{path} holds no mapping from names to tensors")
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}
