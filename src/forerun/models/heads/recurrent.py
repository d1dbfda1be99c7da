"""The forward of EAGLE-1, EAGLE-3, P-EAGLE and MTP heads in torch: one definition for training and for serving.

Who attends to whom is the caller's: in serving a view of block memory, in training the layout of the method. Weights
are a mapping by name, so that parameters with gradients and plain tensors go the same way.

EAGLE-1: Li et al. 2401.15077; EAGLE-3: 2503.01840; P-EAGLE: 2602.01469; MTP: DeepSeek-V3, 2412.19437, under
Qwen3-Next's names.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from forerun.models.heads.config import NAMES, RecurrentConfig
from forerun.models.layer import Attend, Named, layer, norm

Weights = Mapping[str, Tensor]


def lifted(w: Weights, c: RecurrentConfig, features: Tensor) -> Tensor:
    """The target's features [..., F] as the head's own [..., H]: EAGLE-3's joining of taps; others take them as is."""
    if c.kind in ("eagle", "mtp"):
        return features
    if c.norm_before_fc:
        features = norm(features, w["input_norm.weight"], c.norm_eps)
    if c.fc_norm:
        parts = torch.split(features, c.target_size, -1)
        features = torch.cat([norm(x, w[f"fc_norm.{i}.weight"], c.norm_eps) for i, x in enumerate(parts)], -1)
    return _linear(w, "fc", features)


def forward(w: Weights, c: RecurrentConfig, embedded: Tensor, feature: Tensor, attend: Attend) -> Tensor:
    """Slots of (embedding of the next token, feature), [..., H] each, to what `ending` and the next step read."""
    if c.kind in ("eagle", "mtp"):
        if c.kind == "mtp":
            embedded = norm(embedded, w["enorm.weight"], c.norm_eps)
            feature = norm(feature, w["hnorm.weight"], c.norm_eps)
        x = _linear(w, "fc", torch.cat([embedded, feature], -1))
        read = norm(x, w["layers.0.input_layernorm.weight"], c.norm_eps) if c.kind == "mtp" else x
    else:
        normed = norm(feature, w["layers.0.hidden_norm.weight"], c.norm_eps)
        x = normed if c.norm_before_residual else feature
        read = torch.cat([norm(embedded, w["layers.0.input_layernorm.weight"], c.norm_eps), normed], -1)
    for i in range(c.layers):
        x = layer(Named(w, f"layers.{i}.", c.norm_eps, NAMES), i, x, c.head_dim, attend, read=None if i else read)
    return norm(x, w["norm.weight"], c.norm_eps) if c.norm_output else x


def ending(w: Weights, c: RecurrentConfig, state: Tensor) -> Tensor:
    """What `forward` gave, as the vocabulary's end reads it."""
    return norm(state, w["norm.weight"], c.norm_eps) if c.normed and not c.norm_output else state


def _linear(w: Weights, name: str, x: Tensor) -> Tensor:
    return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))
