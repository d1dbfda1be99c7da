"""What training needs of the target's own weights: its embedding and its vocabulary's end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from forerun.models.config import ModelConfig
from forerun.weights.folder import Checkpoint


@dataclass(frozen=True, slots=True)
class Ends:
    """`embedding` and `end` bfloat16 [V, E], of the checkpoint `source`."""

    config: ModelConfig
    embedding: Tensor
    end: Tensor
    source: Checkpoint

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Ends:
        """Read from a checkpoint."""
        config, load = ModelConfig.from_hf(checkpoint.config), checkpoint.tensors.load
        embedding = load("model.embed_tokens.weight").bfloat16()
        end = embedding if config.tied else load("lm_head.weight").bfloat16()
        return cls(config, embedding, end, checkpoint)

    def to(self, device: torch.device) -> Ends:
        """The same on that device."""
        return replace(self, embedding=self.embedding.to(device), end=self.end.to(device))

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
