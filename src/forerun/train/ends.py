"""What training needs of the target's own weights: its embedding, its vocabulary's end, its last norm, a layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from forerun.models.config import ModelConfig
from forerun.weights.folder import Checkpoint

_LAYER = {
    "self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v", "self_attn.o_proj": "o",
    "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ends:
    """`embedding` and `end` bfloat16 [V, E]; `norm` float32 [E]; `layer` the last one's matrices, float32, by their
    names without .weight, and its norms."""

    config: ModelConfig
    embedding: Tensor
    end: Tensor
    norm: Tensor
    layer: Mapping[str, Tensor]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Ends:
        """Read from a checkpoint."""
        config, load = ModelConfig.from_hf(checkpoint.config), checkpoint.tensors.load
        embedding = load("model.embed_tokens.weight").bfloat16()
        at = f"model.layers.{config.layers - 1}."
        names = [*_LAYER, "input_layernorm", "post_attention_layernorm"]
        return cls(
            config,
            embedding,
            embedding if config.tied else load("lm_head.weight").bfloat16(),
            load("model.norm.weight").float(),
            {name: load(f"{at}{name}.weight").float() for name in names},
        )

    def rows(self, words: Tensor | None) -> Tensor:
        """The end's rows for these words, or all."""
        return self.end if words is None else self.end[words]


def draft_words(counts: Tensor, size: int) -> Tensor | None:
    """The `size` most frequent ids, ascending, by `counts` [V]; the lowest ids fill up, None stands for all."""
    if size >= len(counts):
        return None
    order = torch.argsort(counts, descending=True, stable=True)
    words: Tensor = order[:size].sort().values
    return words
