"""A network out of a checkpoint, with a checked place for every tensor.

Tensors are taken one by one and packed at once, so that at most one layer is in memory twice.
"""

from __future__ import annotations

import torch
from torch import Tensor

from forerun.core.errors import CapacityError
from forerun.models.config import ModelConfig
from forerun.models.linear import Weight, laid_out
from forerun.models.llama import Layer, Network
from forerun.models.rope import tables
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
        embedding = loader.tensor("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        layers = tuple(loader.layer(f"model.layers.{i}.") for i in range(config.layers))
        norm = loader.tensor("model.norm.weight", config.hidden_size)
        if config.tied:
            head = laid_out(embedding)
        else:
            head = loader.weight(("lm_head",), (config.vocab_size,), config.hidden_size, False)
        take.finish()
        cos, sin = tables(config.rope, config.head_dim, max_len or config.max_len)
        sin[:, : config.head_dim // 2].neg_()
        cos, sin = (table.to(device=device, dtype=dtype)[:, None] for table in (cos, sin))
    return Network(config, layers, embedding, norm, head, cos, sin)


class _Loader:
    def __init__(self, config: ModelConfig, take: Take, dtype: torch.dtype, device: torch.device) -> None:
        self._config, self._take, self._dtype, self._device = config, take, dtype, device

    def tensor(self, name: str, *shape: int) -> Tensor:
        return self._take.take(name, shape, self._dtype, self._device)

    def weight(self, names: tuple[str, ...], rows: tuple[int, ...], width: int, bias: bool) -> Weight:
        """One packed weight out of the rows of several."""
        matrix = torch.empty(sum(rows), width, dtype=self._dtype, device=self._device)
        offsets = torch.empty(sum(rows), dtype=self._dtype, device=self._device) if bias else None
        at = 0
        for name, count in zip(names, rows, strict=True):
            matrix[at : at + count] = self.tensor(f"{name}.weight", count, width)
            if offsets is not None:
                offsets[at : at + count] = self.tensor(f"{name}.bias", count)
            at += count
        return laid_out(matrix, offsets)

    def layer(self, prefix: str) -> Layer:
        c = self._config
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        q_rows, kv_rows = c.heads * c.head_dim, c.kv_heads * c.head_dim
        qkv = tuple(f"{attention}{part}_proj" for part in "qkv")
        return Layer(
            attention_norm=self.tensor(f"{prefix}input_layernorm.weight", c.hidden_size),
            qkv=self.weight(qkv, (q_rows, kv_rows, kv_rows), c.hidden_size, c.qkv_bias),
            o=self.weight((f"{attention}o_proj",), (c.hidden_size,), q_rows, c.o_bias),
            mlp_norm=self.tensor(f"{prefix}post_attention_layernorm.weight", c.hidden_size),
            gate_up=self.weight(
                (f"{mlp}gate_proj", f"{mlp}up_proj"), (c.intermediate_size,) * 2, c.hidden_size, c.mlp_bias
            ),
            down=self.weight((f"{mlp}down_proj",), (c.hidden_size,), c.intermediate_size, c.mlp_bias),
            qk_norm=self._qk_norm(attention) if c.qk_norm else None,
        )

    def _qk_norm(self, attention: str) -> Tensor:
        """The norms of queries and keys as one [heads + kv_heads, head_dim]."""
        c = self._config
        q, k = (self.tensor(f"{attention}{part}_norm.weight", c.head_dim) for part in "qk")
        return torch.cat((q.expand(c.heads, -1), k.expand(c.kv_heads, -1)))
