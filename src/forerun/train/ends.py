"""What training needs of the target's own weights: its embedding and its vocabulary's end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from timeit import Timer

import torch
from torch import Tensor

from forerun.models.config import ModelConfig
from forerun.weights.folder import Checkpoint

_PROBED = 256  # rows and columns of the product that is timed


@dataclass(frozen=True, slots=True)
class Ends:
    """`embedding` and `end` [V, E], of the checkpoint `source`, in the dtype that lessons compute in."""

    config: ModelConfig
    embedding: Tensor
    end: Tensor
    source: Checkpoint

    @classmethod
    def of(cls, checkpoint: Checkpoint, dtype: torch.dtype = torch.bfloat16) -> Ends:
        """Read from a checkpoint; `dtype` is bfloat16 or float32."""
        config, load = ModelConfig.from_hf(checkpoint.config), checkpoint.tensors.load
        embedding = load("model.embed_tokens.weight").to(dtype)
        end = embedding if config.tied else load("lm_head.weight").to(dtype)
        return cls(config, embedding, end, checkpoint)

    def to(self, device: torch.device) -> Ends:
        """The same on that device."""
        return replace(self, embedding=self.embedding.to(device), end=self.end.to(device))

    def computing(self) -> torch.autocast:
        """A block whose products are of these ends' dtype."""
        half = self.end.dtype == torch.bfloat16
        return torch.autocast(self.end.device.type, torch.bfloat16, enabled=half)

    def rows(self, words: Tensor | None) -> Tensor:
        """The end's rows for these words, or all."""
        return self.end if words is None else self.end[words]


def faster_dtype(device: torch.device) -> torch.dtype:
    """bfloat16, or float32 on a processor where products of bfloat16 take longer: without instructions for them, torch
    needs seven times as long."""
    if device.type != "cpu":
        return torch.bfloat16
    seconds = {}
    for dtype in (torch.bfloat16, torch.float32):
        one = torch.ones(_PROBED, _PROBED, dtype=dtype)
        timer = Timer("one @ one", globals={"one": one})
        seconds[dtype] = min(timer.repeat(5, 1))
    return min(seconds, key=lambda dtype: seconds[dtype])


def draft_words(counts: Tensor, size: int) -> Tensor | None:
    """The `size` most frequent ids, ascending, by `counts` [V]; the lowest ids fill up, None stands for all."""
    if size >= len(counts):
        return None
    order = torch.argsort(counts, descending=True, stable=True)
    words: Tensor = order[:size].sort().values
    return words
