"""Rotary position tables for every scaling the supported families use, equal to transformers' own.

Kinds: default, linear, dynamic (NTK), llama3, yarn. transformers re-computes dynamic NTK as a sequence
grows; keys that are already cached cannot be turned again, so here one base serves the whole run: the
plain one while `max_len` is within the trained length, else the one for `max_len`.
Papers: RoFormer arXiv:2104.09864, YaRN arXiv:2309.00071.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch

from forerun.models.elsewhere import elsewhere
from forerun.models.fields import Fields

Kind = Literal["default", "linear", "dynamic", "llama3", "yarn"]
_LONGEST = 1 << 25


@dataclass(frozen=True, slots=True)
class Rope:
    """How positions turn; `original_max_len` is the length before scaling, fields of other kinds stay unused."""

    theta: float
    original_max_len: int
    kind: Kind = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    @classmethod
    def from_hf(cls, config: Mapping[str, object], max_len: int, base: float = 10000.0) -> "Rope":
        """From `rope_theta` (`base` if absent) and `rope_scaling`, or from transformers 5's `rope_parameters`."""
        where = "rope_parameters" if config.get("rope_scaling") is None else "rope_scaling"
        values = config.get(where)
        if values is None:
            values = {}
        if not isinstance(values, Mapping):
            raise Fields(config).bad(where, "an object or null")
        read = Fields(values, f"{where}.")
        theta = (Fields(config) if read.missing("rope_theta") else read).number("rope_theta", 1.0, 1e12, base)
        for source in (read, Fields(config)):
            if source.number("partial_rotary_factor", 0.0, 1.0, default=1.0) != 1.0:
                hint = f"partial rotation is not implemented; {elsewhere(config)}"
                raise source.bad("partial_rotary_factor", "1.0", hint)
        kind = _kind(read, config)
        if kind == "default":
            return cls(theta, max_len)
        return _scaled(cls, kind, theta, max_len, read, Fields(config))


def _kind(read: Fields, config: Mapping[str, object]) -> Kind:
    key = "type" if read.missing("rope_type") else "rope_type"
    got = "default" if read.missing(key) else read.raw(key)
    if got in get_args(Kind):
        return cast(Kind, got)
    raise read.bad(key, ", ".join(get_args(Kind)), f"this scaling is not implemented; {elsewhere(config)}")


def _scaled(cls: type[Rope], kind: Kind, theta: float, max_len: int, read: Fields, top: Fields) -> Rope:
    key = "original_max_position_embeddings"
    original = max_len
    if kind in ("llama3", "yarn"):
        original = (read if top.missing(key) else top).integer(key, 1, _LONGEST, default=max_len)
    default = max_len / original if kind == "yarn" else None
    factor = read.number("factor", 0.0, 1e6, default)
    if factor < 1 and not read.missing("factor"):
        raise read.bad("factor", "at least 1")
    if kind == "llama3":
        low, high = (read.number(f"{end}_freq_factor", 0.0, 1e6) for end in ("low", "high"))
        if not low < high:
            raise read.bad("high_freq_factor", f"above low_freq_factor = {low:g}")
        return cls(theta, original, kind, factor, low, high)
    if kind != "yarn":
        return cls(theta, original, kind, factor)
    return cls(
        theta, original, kind, factor,
        attention_factor=read.maybe("attention_factor", 1e-3, 1e3),
        beta_fast=read.number("beta_fast", 0.0, 1e6, 32.0),
        beta_slow=read.number("beta_slow", 0.0, 1e6, 1.0),
        mscale=read.maybe("mscale", -1.0, 1e3),
        mscale_all_dim=read.maybe("mscale_all_dim", -1.0, 1e3),
        truncate=read.flag("truncate", default=True),
    )  # fmt: skip


def inv_freq(rope: Rope, head_dim: int, max_len: int) -> tuple[torch.Tensor, float]:
    """Radians per position [head_dim / 2] in float32, and what cos and sin are multiplied by."""
    theta = rope.theta
    if rope.kind == "dynamic" and max_len > rope.original_max_len:
        stretch = rope.factor * max_len / rope.original_max_len - (rope.factor - 1)
        theta *= stretch ** (head_dim / (head_dim - 2)) if head_dim > 2 else 1.0
    plain = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    if rope.kind == "linear":
        return plain / rope.factor, 1.0
    if rope.kind == "llama3":
        return _llama3(rope, plain), 1.0
    if rope.kind == "yarn":
        return _yarn(rope, head_dim, plain), _yarn_attention(rope)
    return plain, 1.0


def tables(rope: Rope, head_dim: int, max_len: int, positions: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin for `positions` (None: max_len), each [positions, head_dim] in float32, halves repeated as Hugging
    Face's rotation expects; turns are as for `max_len`."""
    per_position, scale = inv_freq(rope, head_dim, max_len)
    angles = torch.outer(torch.arange(positions or max_len, dtype=torch.float32), per_position)  # [L, D/2]
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos() * scale, angles.sin() * scale


def _llama3(rope: Rope, plain: torch.Tensor) -> torch.Tensor:
    """Slow turns divided by the factor, fast ones kept, a straight mix between."""
    wave = 2 * math.pi / plain
    smooth = (rope.original_max_len / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    mixed = (1 - smooth) * plain / rope.factor + smooth * plain
    slow = torch.where(wave > rope.original_max_len / rope.low_freq_factor, plain / rope.factor, mixed)
    return torch.where(wave < rope.original_max_len / rope.high_freq_factor, plain, slow)


def _yarn(rope: Rope, head_dim: int, plain: torch.Tensor) -> torch.Tensor:
    def dimension(turns: float) -> float:  # at which a position turns that often over the original length
        return head_dim * math.log(rope.original_max_len / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    high = high + 0.001 if low == high else high
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    return plain / rope.factor * ramp + plain * (1 - ramp)


def _yarn_attention(rope: Rope) -> float:
    def scale(weight: float) -> float:
        return 1.0 if rope.factor <= 1 else 0.1 * weight * math.log(rope.factor) + 1.0

    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return scale(rope.mscale) / scale(rope.mscale_all_dim)
    return scale(1.0)
