"""A decoder's tensors as its runtimes lay them out: which lie in one product, and the names they are found under."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forerun.arch import TOP
from forerun.models.config import ModelConfig
from forerun.models.layer import shapes

PRODUCTS = {"qkv": ("q", "k", "v"), "o": ("o",), "gate_up": ("gate", "up"), "down": ("down",)}
"""Matrices that are multiplied with, and the roles of their parts, whose rows lie one after another."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of several tensors as one matrix; `names` lack `.weight`."""

    role: str
    names: tuple[str, ...]
    rows: tuple[int, ...]
    cols: int
    bias: bool = False


@dataclass(frozen=True, slots=True)
class Norm:
    """One vector of a norm; `shift` is to be added to what the tensor holds."""

    role: str
    name: str
    size: int
    shift: float


def layer_of(config: ModelConfig, i: int) -> Iterator[Matrix | Norm]:
    """All of layer i."""
    names, found = config.arch.layer, shapes(config, config.arch.layer)

    def full(role: str) -> str:
        return f"model.layers.{i}.{names[role][0]}"

    for role, parts in PRODUCTS.items():
        rows = tuple(found[part][0][0] for part in parts)
        yield Matrix(role, tuple(map(full, parts)), rows, found[parts[0]][0][1], found[parts[0]][1])
    for role, (shape, _) in found.items():
        if len(shape) == 1:
            yield Norm(role, f"{full(role)}.weight", shape[0], config.arch.norm_shift)


def embedding(config: ModelConfig) -> Matrix:
    """The table of embeddings."""
    return Matrix("embedding", (TOP["embedding"][0],), (config.vocab_size,), config.hidden_size)


def head(config: ModelConfig) -> Matrix | None:
    """The language head; None where the embedding serves."""
    return None if config.tied else Matrix("head", (TOP["head"][0],), (config.vocab_size,), config.hidden_size)


def last_norm(config: ModelConfig) -> Norm:
    """The norm before the head."""
    return Norm("norm", f"{TOP['norm'][0]}.weight", config.hidden_size, config.arch.norm_shift)


def tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of a model's files by Hugging Face's name, with its shape."""
    top: list[Matrix | Norm | None] = [embedding(config), last_norm(config), head(config)]
    found = {name: shape for part in top if part for name, shape in _files(part)}
    for i in range(config.layers):
        found |= {name: shape for part in layer_of(config, i) for name, shape in _files(part)}
    return found


def _files(part: Matrix | Norm) -> Iterator[tuple[str, tuple[int, ...]]]:
    if isinstance(part, Norm):
        yield part.name, (part.size,)
        return
    for name, rows in zip(part.names, part.rows, strict=True):
        yield f"{name}.weight", (rows, part.cols)
        if part.bias:
            yield f"{name}.bias", (rows,)
