"""Random networks in the shape of known ones: for times, which no value changes, with no download and no file.

`random:NAME` in place of a model. Tensors are made when they are asked for, out of one pool of values, so that a model
of several gigabytes takes a second and only the memory of the network itself.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from forerun.core.errors import unknown
from forerun.models.config import ModelConfig
from forerun.models.layout import tensors
from forerun.weights.folder import Checkpoint

PREFIX = "random:"
_POOL = 1_048_573  # a prime: no row length divides it, so no two rows are alike


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder, in the words of its config.json."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tied: bool
    max_position_embeddings: int = 32768
    rope_theta: float = 1e6

    @property
    def config(self) -> dict[str, object]:
        """The config.json."""
        sizes = {name: getattr(self, name) for name in self.__slots__ if name != "tied"}
        return {**sizes, "rms_norm_eps": 1e-6, "tie_word_embeddings": self.tied}

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every tensor's shape by Hugging Face's name."""
        return tensors(ModelConfig.from_hf(self.config))


SHAPES = {
    "tiny": Shape("llama", 64, 128, 2, 4, 2, 16, 320, True, 4096, 1e4),
    "smollm2-135m": Shape("llama", 576, 1536, 30, 9, 3, 64, 49152, True, 8192, 1e5),
    "smollm2-360m": Shape("llama", 960, 2560, 32, 15, 5, 64, 49152, True, 8192, 1e5),
    "qwen2-0.5b": Shape("qwen2", 896, 4864, 24, 14, 2, 64, 151936, True),
    "qwen3-0.6b": Shape("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, True, 40960),
    "qwen2-1.5b": Shape("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, True),
    "mistral-7b": Shape("mistral", 4096, 14336, 32, 32, 8, 128, 32768, False, 32768, 1e6),
}


def is_random(model: str) -> bool:
    """Whether a model's name asks for random weights."""
    return model.startswith(PREFIX)


def random_checkpoint(model: str) -> Checkpoint:
    """The checkpoint behind `random:NAME`; SpecError for a name that is not among SHAPES."""
    name = model.removeprefix(PREFIX)
    if name not in SHAPES:
        raise unknown("shape of random weights", name, SHAPES)
    shape = SHAPES[name]
    mark = hashlib.sha256(repr(shape).encode()).hexdigest()[:16]
    return Checkpoint(Path(f"random-{name}"), shape.config, RandomSource(shape.tensors()), mark, frozenset(), "folder")


class RandomSource:
    """A `TensorSource` of bfloat16 tensors that lie nowhere; the same name has the same values every time."""

    files: tuple[Path, ...] = ()

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = dict(shapes)
        self._pool = torch.randn(_POOL, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)

    def names(self) -> frozenset[str]:
        """All tensor names."""
        return frozenset(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self._shapes[name]

    def raw(self, name: str) -> None:
        """None: there are no blocks."""
        return None

    def load(self, name: str) -> Tensor:
        """Matrices of variance 1 / columns, norms of ones, small biases."""
        shape = self._shapes[name]
        if "norm" in name:
            return torch.ones(shape, dtype=torch.bfloat16)
        scale = 1 / math.sqrt(shape[1]) if len(shape) == 2 and "embed" not in name else 0.05
        out = torch.empty(math.prod(shape), dtype=torch.bfloat16)
        pool = (self._pool * scale).roll(-int(hashlib.sha256(name.encode()).hexdigest()[:6], 16) % _POOL)
        whole = out.numel() // _POOL * _POOL
        out[:whole].view(-1, _POOL).copy_(pool)
        out[whole:] = pool[: out.numel() - whole]
        return out.view(shape)
