"""One decoder layer, of every family: what a target's forward in torch, its training and a drafting head's compute.

What a layer computes follows from the roles of its tensors (`forerun.arch`): norms of queries and keys, and norms after
attention and MLP, are there or not. Who sees whom, and how positions turn, is the caller's: `attend`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from forerun.arch import Activation, Names

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [..., heads, dim], k and v [..., kv_heads, dim], not yet rotated) -> mixed [..., heads * dim]. It may use
up what it is given."""


class Sizes(Protocol):
    """Of a decoder's layers."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def norm_eps(self) -> float: ...
    @property
    def qkv_bias(self) -> bool: ...
    @property
    def o_bias(self) -> bool: ...
    @property
    def mlp_bias(self) -> bool: ...


class Weights(Protocol):
    """A layer's tensors by role."""

    def has(self, role: str) -> bool:
        """Whether there is a tensor of this role."""

    def linear(self, role: str, x: Tensor) -> Tensor:
        """`x` [..., in] times a matrix, plus its bias: [..., out]."""

    def linears(self, *roles: str, x: Tensor) -> tuple[Tensor, ...]:
        """The same of several matrices that read the same."""

    def norm(self, role: str, x: Tensor) -> Tensor:
        """RMS norm of `x` over the last dimension."""


def layer(
    w: Weights, i: int, x: Tensor, head_dim: int, attend: Attend, activation: Activation = "silu",
    read: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Layer i of `x` [..., E]: [..., E]. Attention reads `read` [..., in], if that is not the norm of `x`."""
    x = x + attention(w, i, w.norm("attention_norm", x) if read is None else read, head_dim, attend)
    return x + mlp(w, w.norm("mlp_norm", x), activation)


def attention(w: Weights, i: int, read: Tensor, head_dim: int, attend: Attend) -> Tensor:
    """What attention of layer i adds, of what it reads."""
    q, k, v = (part.view(*part.shape[:-1], -1, head_dim) for part in w.linears("q", "k", "v", x=read))
    if w.has("q_norm"):
        q, k = w.norm("q_norm", q), w.norm("k_norm", k)
    out = w.linear("o", attend(i, q, k, v))
    return w.norm("attention_out_norm", out) if w.has("attention_out_norm") else out


def mlp(w: Weights, read: Tensor, activation: Activation = "silu") -> Tensor:
    """What the MLP adds, of what it reads."""
    gate, up = w.linears("gate", "up", x=read)
    out = w.linear("down", activated(gate, activation) * up)
    return w.norm("mlp_out_norm", out) if w.has("mlp_out_norm") else out


def activated(x: Tensor, activation: Activation) -> Tensor:
    """The activation of `x`."""
    return F.silu(x) if activation == "silu" else F.gelu(x, approximate="tanh")


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm over the last dimension, in the weight's precision."""
    return F.rms_norm(x.to(weight.dtype), weight.shape, weight, eps)


@dataclass(frozen=True, slots=True)
class Named:
    """The layer whose tensors' names begin with `at` in a mapping, with or without gradients."""

    tensors: Mapping[str, Tensor]
    at: str
    eps: float
    names: Names
    shift: float = 0.0
    """Added to the weights of norms."""

    def has(self, role: str) -> bool:
        return role in self.names and f"{self.at}{self.names[role][0]}.weight" in self.tensors

    def linear(self, role: str, x: Tensor) -> Tensor:
        stem = f"{self.at}{self.names[role][0]}"
        return F.linear(x, self.tensors[f"{stem}.weight"], self.tensors.get(f"{stem}.bias"))

    def linears(self, *roles: str, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.linear(role, x) for role in roles)

    def norm(self, role: str, x: Tensor) -> Tensor:
        weight = self.tensors[f"{self.at}{self.names[role][0]}.weight"]
        return norm(x, weight + self.shift if self.shift else weight, self.eps)


def shapes(sizes: Sizes, names: Names) -> dict[str, tuple[tuple[int, ...], bool]]:
    """Of each role the tensor's shape, [out, in] of a matrix, and whether it has a bias [out]."""
    s, hidden = sizes, sizes.hidden_size
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    matrices = {
        "q": ((q, hidden), s.qkv_bias), "k": ((kv, hidden), s.qkv_bias), "v": ((kv, hidden), s.qkv_bias),
        "o": ((hidden, q), s.o_bias),
        "gate": ((s.intermediate_size, hidden), s.mlp_bias), "up": ((s.intermediate_size, hidden), s.mlp_bias),
        "down": ((hidden, s.intermediate_size), s.mlp_bias),
    }  # fmt: skip
    vectors = dict.fromkeys(("q_norm", "k_norm"), s.head_dim)
    return {role: matrices.get(role, ((vectors.get(role, hidden),), False)) for role in names}


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys [T, heads, dim] turned by tables [T, 1, dim]."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin
