"""Random drafting heads of any kind, small enough for tests: they guess nonsense, by the rules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from forerun.models.heads.config import HeadConfig, Kind, MedusaConfig, RecurrentConfig
from forerun.models.heads.head import Head
from forerun.models.rope import Rope


def random_config(
    kind: Kind, vocab: int = 12, width: int = 12, draft_vocab: int | None = None, **changes: Any
) -> HeadConfig:
    """A small config for a target of `vocab` words and states `width` wide."""
    draft_vocab = draft_vocab or vocab
    if kind == "medusa":
        return MedusaConfig(vocab_size=vocab, target_size=width, draft_vocab=draft_vocab, **{"count": 3, **changes})
    three = kind in ("eagle3", "p-eagle")
    values: dict[str, Any] = {
        "vocab_size": vocab, "target_size": width, "draft_vocab": draft_vocab, "hidden_size": width,
        "intermediate_size": 20, "heads": 4, "kv_heads": 2, "head_dim": 8, "norm_eps": 1e-5, "max_len": 256,
        "rope": Rope(10000.0, 256), "taps": (0, 1, 2) if three else (), "mask_id": 1 if kind == "p-eagle" else None,
    }  # fmt: skip
    return RecurrentConfig(kind=kind, **{**values, **changes})


def random_head(config: HeadConfig, seed: int = 0, own_end: bool | None = None, sharp: float = 2.0) -> Head:
    """Random weights for `config`; an end of its own unless it is an EAGLE-1 head. `sharp` scales the ends."""
    draw = torch.Generator().manual_seed(seed)

    def values(name: str, shape: tuple[int, ...]) -> Tensor:
        noise = torch.randn(shape, generator=draw)
        return 1 + 0.1 * noise if "norm" in name and len(shape) == 1 else noise * shape[-1] ** -0.5

    tensors = {name: values(name, shape) for name, shape in sorted(config.shapes().items())}
    if own_end if own_end is not None else config.kind != "eagle":
        shape = (config.draft_vocab, config.hidden_size)
        tensors |= {name: torch.randn(shape, generator=draw) * sharp for name in config.ends}
    words = None
    if config.reduced:
        words = torch.randperm(config.vocab_size, generator=draw)[: config.draft_vocab].sort().values
    return Head(config, tensors, words)
