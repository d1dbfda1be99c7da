"""A network out of a checkpoint, with a checked place for every tensor.

Tensors are taken one by one and packed at once, so that at most one layer is in memory twice.
"""

from __future__ import annotations

import torch
from torch import Tensor

from forerun.core.errors import CapacityError
from forerun.models import layout
from forerun.models.config import ModelConfig
from forerun.models.linear import Weight, laid_out
from forerun.models.network import Layer, Network
from forerun.models.rope import Rope, tables
from forerun.weights.folder import Checkpoint
from forerun.weights.source import Take


def load_network(
    checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device | str, max_len: int | None = None
) -> Network:
    """The checkpoint's decoder, with rotary tables for `max_len` tokens (the config's if None).

    Raises LoadError for tensors that are missing, of another shape, or left over, CapacityError if they do not fit.
    """
    config = ModelConfig.from_hf(checkpoint.config)
    try:
        return build_network(config, Take(checkpoint.tensors), dtype, device, max_len)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        name = str(dtype).removeprefix("torch.")
        raise CapacityError(
            f"the weights of {checkpoint.path.name} do not fit the memory of {device} as {name}: take a smaller model, "
            "or dtype bfloat16"
        ) from error


def build_network(
    config: ModelConfig, take: Take, dtype: torch.dtype, device: torch.device | str, max_len: int | None = None
) -> Network:
    """The decoder that `config` describes, from the tensors in `take`."""
    loader = _Loader(config, take, dtype, torch.device(device))
    with torch.inference_mode():
        table, end = layout.embedding(config), layout.head(config)
        embedding = loader.tensor(f"{table.names[0]}.weight", *table.rows, table.cols)
        layers = tuple(loader.layer(i) for i in range(config.layers))
        norm = loader.norm(layout.last_norm(config))
        head = loader.weight(end) if end else laid_out(embedding)
        take.finish()
        turns = {rope: loader.turns(rope, max_len) for rope in (config.rope, config.local_rope) if rope}
    return Network(config, layers, embedding, norm, head, turns)


class _Loader:
    def __init__(self, config: ModelConfig, take: Take, dtype: torch.dtype, device: torch.device) -> None:
        self._config, self._take, self._dtype, self._device = config, take, dtype, device

    def tensor(self, name: str, *shape: int) -> Tensor:
        return self._take.take(name, shape, self._dtype, self._device)

    def norm(self, norm: layout.Norm) -> Tensor:
        weight = self._take.take(norm.name, (norm.size,), torch.float32, self._device)
        return (weight + norm.shift).to(self._dtype)

    def weight(self, product: layout.Matrix) -> Weight:
        """One packed weight out of the rows of several."""
        total = sum(product.rows)
        matrix = torch.empty(total, product.cols, dtype=self._dtype, device=self._device)
        offsets = torch.empty(total, dtype=self._dtype, device=self._device) if product.bias else None
        at = 0
        for name, count in zip(product.names, product.rows, strict=True):
            matrix[at : at + count] = self.tensor(f"{name}.weight", count, product.cols)
            if offsets is not None:
                offsets[at : at + count] = self.tensor(f"{name}.bias", count)
            at += count
        return laid_out(matrix, offsets)

    def layer(self, i: int) -> Layer:
        parts = tuple(layout.layer_of(self._config, i))
        matrices = [part for part in parts if isinstance(part, layout.Matrix)]
        norms = [part for part in parts if isinstance(part, layout.Norm)]
        return Layer(
            products={part.role: self.weight(part) for part in matrices},
            norms={part.role: self.norm(part) for part in norms},
            rows={part.role: list(part.rows) for part in matrices},
            eps=self._config.norm_eps,
        )

    def turns(self, rope: Rope, max_len: int | None) -> tuple[Tensor, Tensor]:
        """Rotary tables; `Network` says how."""
        cos, sin = tables(rope, self._config.head_dim, max_len or self._config.max_len)
        sin[:, : self._config.head_dim // 2].neg_()
        cos, sin = (table.to(device=self._device, dtype=self._dtype)[:, None] for table in (cos, sin))
        return cos, sin
