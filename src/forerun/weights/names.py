"""GGUF tensors under their Hugging Face names, rows in Hugging Face order.

GGUF files of the `llama` architecture keep the rows of q and k (weights and biases) interleaved, for a
rotation of neighbours; Hugging Face rotates halves. The permutation is undone here, so that a model
never needs to know where its weights came from. Other architectures are stored unpermuted.
"""

import math
import re
from collections.abc import Iterator

import numpy as np
import torch

from forerun.arch import TOP, Arch, Names
from forerun.weights.dequant import stored
from forerun.weights.gguf import GGUFFile
from forerun.weights.source import Raw

_IN_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_PERMUTED = re.compile(r"model\.layers\.\d+\.self_attn\.([qk])_proj\.(weight|bias)")
ROPE_FACTORS = "rope_freqs.weight"  # a table the config is made from, not a weight


def hf_name(name: str, layer: Names) -> str:
    """The Hugging Face name of a GGUF tensor; a name we do not know stays itself and will be left over."""
    if match := _IN_BLOCK.fullmatch(name):
        number, part, ending = match.groups()
        return next((f"model.layers.{number}.{hf}.{ending}" for hf, theirs in layer.values() if theirs == part), name)
    stem, _, ending = name.rpartition(".")
    return next((f"{hf}.{ending}" for hf, theirs in TOP.values() if theirs == stem), name)


def unpermute(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo GGUF's row order: rows [heads * D, ...] interleaved within each head become rows in halves."""
    half = rows.shape[0] // heads // 2
    return rows.view(heads, half, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


class GGUFSource:
    """A `TensorSource` over a GGUF file of a family; `heads` and `kv_heads` as in its config."""

    def __init__(self, file: GGUFFile, arch: Arch, heads: int = 0, kv_heads: int = 0) -> None:
        self._file, self._shift = file, arch.norm_shift
        self._heads = {"q": heads, "k": kv_heads} if arch.interleaved else {}
        self._names = {hf_name(n, arch.layer): n for n in file.tensors if n != ROPE_FACTORS}

    def names(self) -> frozenset[str]:
        """Hugging Face names of all weights in the file."""
        return frozenset(self._names)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, row-major."""
        return self._file.tensors[self._names[name]].shape

    def load(self, name: str) -> torch.Tensor:
        """The tensor in Hugging Face row order, norms without what Hugging Face adds to them."""
        tensor = self._file.load(self._names[name])
        if self._shift and name.endswith("norm.weight"):
            return tensor - self._shift
        heads = self._interleaved(name, tensor.shape[0])
        return unpermute(tensor, heads) if heads else tensor

    def raw(self, name: str) -> Raw | None:
        """The type's name and the blocks [rows, bytes per row] in Hugging Face row order; None for stored floats.

        Blocks lie within rows, so a permutation of rows moves them whole.
        """
        info = self._file.tensors[self._names[name]]
        if stored(info.kind):
            return None
        rows = self._file.raw(self._names[name]).reshape(-1, info.size // (math.prod(info.shape) // info.shape[-1]))
        heads = self._interleaved(name, rows.shape[0])
        if heads:
            order = unpermute(torch.arange(rows.shape[0]), heads).numpy()
            rows = np.ascontiguousarray(rows[order])
        return info.kind.name, rows

    def chunks(self, name: str) -> Iterator[torch.Tensor]:
        """The tensor in one piece, as float32."""
        yield self.load(name).float()

    def stored(self, name: str) -> tuple[str, int]:
        """The name of the tensor's type, and its bytes."""
        info = self._file.tensors[self._names[name]]
        return info.kind.name, info.size

    def _interleaved(self, name: str, rows: int) -> int:
        """The heads whose rows this tensor has interleaved; 0 if it has not."""
        match = _PERMUTED.fullmatch(name)
        heads = self._heads.get(match[1], 0) if match else 0
        return heads if heads and rows % (2 * heads) == 0 else 0
