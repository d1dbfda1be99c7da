"""A checkpoint's weights in the layout of the compiled runtime: which format each takes and why, and its rows in order.

Weights are named by role: "embedding" (absent where the head serves as one), "head", "norm", and for layer i "i." and
the roles of `layout.layer_of`; a bias is its matrix's name and ".bias". The rows of gate_up are 16 gate rows and their
16 up rows in turn, the width between it and down padded with zeros to a multiple of 16. Norms and biases stay float32.

Matrices are packed some hundred rows at a time: no more than the tensors of one matrix is held beside their file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from forerun.core.errors import LoadError
from forerun.models import layout
from forerun.models.config import ModelConfig
from forerun.models.formats import changed, choose
from forerun.native import ext
from forerun.native.packed import Bytes, Writer
from forerun.quant import ggml, int8, nf4, q4
from forerun.weights.dequant import rows_of
from forerun.weights.folder import Checkpoint
from forerun.weights.source import Take

UNIT = 16
"""Rows of gate and of up that lie together; the width of the gated product is padded to a multiple of it."""
_STRIP = 32
_CHUNK = 1 << 18  # values packed at a time: what quantising makes of them stays in the cache

Order = npt.NDArray[np.int64]


def pack_model(checkpoint: Checkpoint, weights: str, writer: Writer) -> dict[str, Any]:
    """Pack all of a checkpoint's weights as the option `weights` says; returns what to keep beside them.

    LoadError for tensors that are missing, of another shape, left over, or not finite.
    """
    config = ModelConfig.from_hf(checkpoint.config)
    take = Take(checkpoint.tensors)
    packer = Packer(take, weights, writer)
    with torch.inference_mode():
        packer.matrix("head" if config.tied else "embedding", layout.embedding(config), edge=True)
        for i in range(config.layers):
            _layer(packer, config, i)
        packer.norm("norm", layout.last_norm(config))
        if head := layout.head(config):
            packer.matrix("head", head, edge=True)
    take.finish()
    return {
        "config": dict(checkpoint.config),
        "weights": weights,
        "fingerprint": checkpoint.fingerprint,
        "eos_ids": sorted(checkpoint.eos_ids),
        "formats": dict(packer.formats),
        "reasons": packer.reasons(),
        "notes": [*checkpoint.notes, *packer.changes(checkpoint, writer.size)],
    }


def _layer(packer: Packer, config: ModelConfig, i: int) -> None:
    order = in_turn(config.intermediate_size)
    for part in layout.layer_of(config, i):
        if isinstance(part, layout.Norm):
            packer.norm(f"{i}.{part.role}", part)
        elif part.role == "gate_up":
            packer.matrix(f"{i}.gate_up", part, order=order)
        else:
            packer.matrix(f"{i}.{part.role}", part, wide=len(order) // 2 if part.role == "down" else None)


def in_turn(rows: int) -> Order:
    """Rows of [gate; up], `rows` of each, 16 gate rows and their 16 up rows in turn; -1 stands for a row of zeros."""
    padded = -(-rows // UNIT) * UNIT
    gate = np.full(padded, -1, np.int64)
    gate[:rows] = np.arange(rows)
    up = np.where(gate < 0, -1, gate + rows)
    return np.stack((gate.reshape(-1, UNIT), up.reshape(-1, UNIT)), 1).reshape(-1)


class Packer:
    """Takes tensors, settles each matrix's format, writes it; counts formats and remembers reasons."""

    def __init__(self, take: Take, weights: str, writer: Writer) -> None:
        self.formats: Counter[str] = Counter()
        self._take, self._weights, self._writer = take, weights, writer
        self._reasons: dict[str, list[str]] = {}

    def norm(self, name: str, norm: layout.Norm) -> None:
        """The weight of a norm as float32."""
        self._writer.vector(name, (self._floats(norm.name, norm.size) + norm.shift).numpy())

    def matrix(
        self, name: str, product: layout.Matrix, *, order: Order | None = None, edge: bool = False,
        wide: int | None = None,
    ) -> None:  # fmt: skip
        """The rows of several tensors as one matrix, and their biases as one vector.

        `order` says which of the joined rows goes where; `edge` marks the vocabulary's ends; `wide` is the number of
        columns to enter where zeros pad them.
        """
        tensors, rows, cols = product.names, product.rows, product.cols
        order = np.arange(sum(rows)) if order is None else order
        members = [Member(self._take, f"{t}.weight", (n, cols)) for t, n in zip(tensors, rows, strict=True)]
        format, reason = choose(self._weights, tuple(member.kind for member in members), edge)
        self.formats[format] += 1
        if reason:
            self._reasons.setdefault(reason, []).append(name)
        pieces = _pieces(members, order, cols, format)
        self._writer.matrix(name, format, len(order), wide or cols, pieces)
        if product.bias:
            joined = torch.cat([self._floats(f"{t}.bias", n) for t, n in zip(tensors, rows, strict=True)])
            placed = torch.where(torch.from_numpy(order < 0), 0.0, joined[order.clip(0)])
            self._writer.vector(f"{name}.bias", placed.numpy())

    def reasons(self) -> list[str]:
        """A sentence for each reason."""
        return [f"{reason}: {_listed(names)}" for reason, names in self._reasons.items()]

    def changes(self, checkpoint: Checkpoint, size: int) -> list[str]:
        """One sentence where matrices of the checkpoint are not what its file holds, though nobody asked for that;
        `size` is what all take now."""
        said = [reason for reason in self._reasons if not reason.endswith("is kept")]
        return [changed("; ".join(said), size, checkpoint.stored)] if said else []

    def _floats(self, tensor: str, size: int) -> Tensor:
        values = self._take.take(tensor, (size,), torch.float32, "cpu")
        _finite(values, tensor)
        return values


class Member:
    """One tensor [N, K] of a matrix, as its file holds it; `kind` is GGML's name of its type."""

    def __init__(self, take: Take, name: str, shape: tuple[int, int]) -> None:
        raw = take.take_raw(name, shape)
        self.name, self.rows = name, shape[0]
        self.kind: str
        if raw is not None:
            self.kind, self.blocks = raw
        else:
            self.values = take.take_stored(name, shape)
            self.kind = _KINDS[self.values.dtype]

    def floats(self, rows: Order) -> Tensor:
        """These rows as float32, checked."""
        values = self.values[torch.from_numpy(rows)].float() if self.kind in _FLOATS else self._unpacked(rows)
        _finite(values, self.name)
        return values

    def raw(self, rows: Order) -> Bytes:
        """These rows' blocks [R, bytes per row]."""
        return self.blocks[rows]

    def _unpacked(self, rows: Order) -> Tensor:
        return rows_of(self.kind, self.blocks[rows])


_KINDS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_FLOATS = tuple(_KINDS.values())
_BLOCKS = {"q8_0": "Q8_0", "q4_0": "Q4_0", "q4_1": "Q4_1"}


def _pieces(members: list[Member], order: Order, cols: int, format: str) -> Iterator[Bytes]:
    """The packed matrix, some strips at a time."""
    names = " and ".join(member.name for member in members)
    kept = all(member.kind == _BLOCKS.get(format) for member in members)
    step = _step(cols)
    for first in range(0, len(order), step):
        rows = order[first : first + step]
        out = np.empty(ext.packed_bytes(format, len(rows), cols), np.uint8)
        if kept:
            width = members[0].blocks.shape[1]
            raw = np.zeros((len(rows), width), np.uint8)  # a block of zero bytes has scale 0
            for member, here, there in _spread(members, rows):
                raw[here] = member.raw(there)
            _pack_blocks(format, ggml.split(_BLOCKS[format], raw), out, names)
        else:
            values = torch.zeros(len(rows), cols)
            for member, here, there in _spread(members, rows):
                values[torch.from_numpy(here)] = member.floats(there)
            _pack_floats(format, values, out, names)
        yield out


def _spread(members: list[Member], rows: Order) -> Iterator[tuple[Member, Order, Order]]:
    """Of these joined rows, for each member: at which places its own stand, and which of its rows they are."""
    start = 0
    for member in members:
        here = np.flatnonzero((rows >= start) & (rows < start + member.rows))
        if here.size:
            yield member, here, rows[here] - start
        start += member.rows


def pieces_of(values: Tensor, format: str, names: str) -> Iterator[Bytes]:
    """A float32 matrix [rows, cols] packed as f32, bf16, int8, nf4 or q4_1, some strips at a time. LoadError, which
    calls it `names`, for values that the format cannot hold."""
    step = _step(values.shape[1])
    for first in range(0, len(values), step):
        part = values[first : first + step]
        out = np.empty(ext.packed_bytes(format, *part.shape), np.uint8)
        _pack_floats(format, part, out, names)
        yield out


def _step(cols: int) -> int:
    """Rows of a piece."""
    return max(1, _CHUNK // cols // _STRIP) * _STRIP


def _pack_blocks(format: str, blocks: ggml.Blocks, out: Bytes, names: str) -> None:
    if not blocks.finite():
        raise _not_finite(names)
    m = None if blocks.m is None else blocks.m.numpy()
    ext.pack_blocks(format, blocks.codes.numpy(), blocks.d.numpy(), m, out)


def _pack_floats(format: str, values: Tensor, out: Bytes, names: str) -> None:
    if format == "f32":
        ext.pack_f32(values.numpy(), out)
    elif format == "bf16":
        rounded = values.bfloat16()
        if not bool(rounded.isfinite().all()):
            raise _too_large(names, "bfloat16")
        ext.pack_bf16(rounded.view(torch.uint16).numpy(), out)
    elif format == "int8":
        codes, scales = int8.quantise(values)
        ext.pack_int8(codes.numpy(), scales.numpy(), out)
    elif format == "nf4":
        codes, scales = nf4.quantise(F.pad(values, (0, -values.shape[1] % nf4.BLOCK)))
        ext.pack_nf4(codes.numpy(), scales.numpy(), out)
    else:
        codes, d, m = q4.quantise(F.pad(values, (0, -values.shape[1] % q4.BLOCK)))
        if not bool(d.isfinite().all() and m.isfinite().all()):
            raise _too_large(names, "half precision, which Q4_1 keeps its scales in")
        ext.pack_blocks("q4_1", codes.numpy(), d.numpy(), m.numpy(), out)


def _finite(values: Tensor, name: str) -> None:
    if not bool(values.isfinite().all()):
        raise _not_finite(name)


def _not_finite(names: str) -> LoadError:
    return LoadError(f"tensor {names} holds NaN or infinity (allowed: finite numbers): the file is damaged or broken")


def _too_large(names: str, what: str) -> LoadError:
    return LoadError(f"tensor {names} holds numbers beyond {what}: load it with weights f32 or int8")


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{len(names)} {'matrix' if len(names) == 1 else 'matrices'} ({shown})"
