"""The forward of Medusa heads in torch (Cai et al. 2401.10774): for training and for serving alike."""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor

from forerun.models.heads.config import MedusaConfig


def forward(w: Mapping[str, Tensor], c: MedusaConfig, i: int, feature: Tensor) -> Tensor:
    """What head i's vocabulary end reads, of features [..., H] out of the target's final norm."""
    for j in range(c.blocks):
        at = f"heads.{i}.blocks.{j}."
        feature = feature + F.silu(F.linear(feature, w[f"{at}weight"], w.get(f"{at}bias")))
    return feature
