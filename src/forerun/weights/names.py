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

from forerun.weights.dequant import stored
from forerun.weights.gguf import GGUFFile
from forerun.weights.source import Raw

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "output.bias": "lm_head.bias",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_IN_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_PERMUTED = re.compile(r"model\.layers\.\d+\.self_attn\.([qk])_proj\.(weight|bias)")
ROPE_FACTORS = "rope_freqs.weight"  # a table the config is made from, not a weight


def hf_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; a name we do not know stays itself and will be left over."""
    if match := _IN_BLOCK.fullmatch(name):
        layer, part, ending = match.groups()
        if part in _BLOCK:
            return f"model.layers.{layer}.{_BLOCK[part]}.{ending}"
    return _TOP.get(name, name)


def unpermute(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo GGUF's row order: rows [heads * D, ...] interleaved within each head become rows in halves."""
    half = rows.shape[0] // heads // 2
    return rows.view(heads, half, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


class GGUFSource:
    """A `TensorSource` over a GGUF file; `heads` and `kv_heads` as in its config."""

    def __init__(self, file: GGUFFile, heads: int, kv_heads: int, permuted: bool) -> None:
        self._file = file
        self._heads = {"q": heads, "k": kv_heads} if permuted else {}
        self._names = {hf_name(n): n for n in file.tensors if n != ROPE_FACTORS}

    def names(self) -> frozenset[str]:
        """Hugging Face names of all weights in the file."""
        return frozenset(self._names)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, row-major."""
        return self._file.tensors[self._names[name]].shape

    def load(self, name: str) -> torch.Tensor:
        """The tensor in Hugging Face row order."""
        tensor = self._file.load(self._names[name])
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
