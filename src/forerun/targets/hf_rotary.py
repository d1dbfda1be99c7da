"""Rotary factors that depend on how long a forward reaches (LongRoPE, dynamic NTK), found by asking the modules.

Names and config keys differ between families and versions, so every rotary module is asked for the same position beside
nearer and farther ones. What changes the answer is the length; a bisection finds where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from forerun.targets.hf_faults import FAULTS


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a model's rotations change with the length of a forward; None where they never do."""

    switch: int | None = None
    """A forward with this position or a later one turns all its keys by a second set of factors (LongRoPE). Keys of
    the first set cannot be used with it."""
    end: int | None = None
    """From this length on every further token changes the factors (dynamic NTK): a cache cannot serve there."""


def reach_of(model: Any, longest: int) -> Reach:
    """The reach of `model` over positions below `longest`."""
    switches: list[int] = []
    ends: list[int] = []
    for angles in _rotations(model):
        if torch.equal(angles(1), angles(longest - 1)):
            continue
        change = _first_change(angles, longest)
        steady = torch.equal(angles(change), angles(longest - 1))
        (switches if steady else ends).append(change)
        angles(1)  # dynamic ones remember the longest forward until a short one
    if len(set(switches)) > 1:  # two borders need three caches; no model has them
        ends.append(max(switches))
    return Reach(min(switches, default=None), min(ends, default=None))


def _rotations(model: Any) -> Iterator[Callable[[int], Tensor]]:
    """For each rotary module and layer type: what position 1 is turned by in a forward up to a position."""
    kinds = sorted(set(getattr(model.config.get_text_config(), "layer_types", None) or ()))
    for module in model.modules():
        if not hasattr(module, "rope_type"):
            continue
        for options in ({}, *({"layer_type": kind} for kind in kinds)):
            angles = _Rotation(module, model.device, options)
            try:
                angles(1)
            except FAULTS:
                continue
            yield angles


@dataclass(frozen=True, slots=True)
class _Rotation:
    module: Any
    device: torch.device
    options: dict[str, str]

    @torch.inference_mode()
    def __call__(self, last: int) -> Tensor:
        positions = torch.tensor([[1, last]], device=self.device)
        out = self.module(torch.zeros(1, 1, 1, device=self.device), positions, **self.options)
        tables = out if isinstance(out, tuple) else (out,)
        return torch.cat([torch.view_as_real(each) if each.is_complex() else each for each in tables], -1)[0, 0].clone()


def _first_change(angles: Callable[[int], Tensor], longest: int) -> int:
    """The first position whose presence changes what position 1 is turned by."""
    plain, low, high = angles(1), 1, longest - 1
    while high - low > 1:
        middle = (low + high) // 2
        angles(1)
        low, high = (middle, high) if torch.equal(plain, angles(middle)) else (low, middle)
    return high
