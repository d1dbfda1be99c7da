"""A head's weights in the layout of the compiled runtime, in memory; packed anew each time, which takes some ms.

What a drafter says is checked anyway, so few bytes count for more than last digits: `q4`, the default, has the
vocabulary's end in blocks of 4 bits, most of what a step reads, and all else in int8; the other formats are of all
matrices. Rows that a head keeps as whole numbers are laid out as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from io import BytesIO

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from forerun.core.errors import unknown
from forerun.models.heads.config import FORMATS, NAMES, MedusaConfig, RecurrentConfig
from forerun.models.heads.head import Head, Rows8, Stored
from forerun.models.layout import PRODUCTS
from forerun.models.packing import in_turn, pieces_of
from forerun.native import ext
from forerun.native.packed import Bytes, PackedModel, Writer
from forerun.quant import int8

_CHUNK = 4096  # rows of the target's end that are looked at together

EndRows = Callable[[Tensor | None], Tensor]
"""Rows [N, E] of the target's vocabulary end by id, float32; None for all of them."""


def pack_head(head: Head, format: str, end_rows: EndRows) -> PackedModel:
    """`head` packed in one of FORMATS; where it has no vocabulary end of its own and knows fewer words than the target,
    the target's rows are copied, and where it knows all there is none."""
    if format not in FORMATS:
        raise unknown("format of a head's weights", format, FORMATS)
    packer = _Packer(head, format)
    if isinstance(head.config, MedusaConfig):
        _medusa(packer, head.config)
    else:
        _recurrent(packer, head.config)
    if head.own_end:
        for i, name in enumerate(head.config.ends):
            packer.matrix(f"{i}.end", [head.tensors[name]], end=True)
    elif head.config.reduced:
        packer.matrix("0.end", [end_rows(head.words)], end=True)
    return packer.packed()


def rows_of_end(target: PackedModel, ids: Tensor | None) -> Tensor:
    """Rows of a packed target's vocabulary end; see EndRows."""
    entry = target.matrix("head")
    arena = target.arena.view()
    found = torch.empty(entry.rows if ids is None else len(ids), entry.cols)
    for first in range(0, entry.rows, _CHUNK):
        count = min(_CHUNK, entry.rows - first)
        wanted = torch.arange(entry.rows) if ids is None else ids
        here = (wanted >= first) & (wanted < first + count)
        if not bool(here.any()):
            continue
        start = entry.offset + ext.packed_bytes(entry.format, first, entry.cols) if first else entry.offset
        size = ext.packed_bytes(entry.format, count, entry.cols)
        rows = torch.from_numpy(ext.unpack(entry.format, count, entry.cols, arena[start : start + size]))
        found[here] = rows[wanted[here] - first]
    return found


def _recurrent(packer: _Packer, c: RecurrentConfig) -> None:
    tensors = packer.head.tensors
    if c.own_embedding:
        packer.matrix("embedding", [tensors["embed_tokens.weight"]])
    packer.joined("fc", ["fc"])
    for name, key in (("norm", "norm.weight"), ("enorm", "enorm.weight")):
        packer.maybe(name, key)
    for name, key in (("hnorm", "hnorm.weight"), ("input_norm", "input_norm.weight"), ("mask", "mask_embedding")):
        packer.maybe(name, key)
    for i in range(len(c.taps)):
        packer.maybe(f"fc_norm.{i}", f"fc_norm.{i}.weight")
    order = in_turn(c.intermediate_size)
    for i in range(c.layers):
        at = f"layers.{i}."
        packer.maybe(f"{i}.feature_norm", f"{at}hidden_norm.weight")
        for role, (stem, _) in NAMES.items():
            if role.endswith("norm"):
                packer.maybe(f"{i}.{role}", f"{at}{stem}.weight")
        for role, parts in PRODUCTS.items():
            members = [f"{at}{NAMES[part][0]}" for part in parts]
            wide = len(order) // 2 if role == "down" else None
            packer.joined(f"{i}.{role}", members, order if role == "gate_up" else None, wide)


def _medusa(packer: _Packer, c: MedusaConfig) -> None:
    for i in range(c.count):
        for j in range(c.blocks):
            packer.matrix(f"{i}.block.{j}", [packer.head.tensors[f"heads.{i}.blocks.{j}.weight"]])
            packer.maybe(f"{i}.block.{j}.bias", f"heads.{i}.blocks.{j}.bias")


class _Packer:
    def __init__(self, head: Head, format: str) -> None:
        self.head = head
        self._format, self._end = ("int8", "q4_1") if format == "q4" else (format, format)
        self._file = BytesIO()
        self._writer = Writer(self._file)

    def maybe(self, name: str, tensor: str) -> None:
        """That tensor as a vector, if the head has it."""
        if tensor in self.head.tensors:
            self.vector(name, [self.head.floats(tensor)])

    def vector(self, name: str, parts: Sequence[Tensor]) -> None:
        self._writer.vector(name, torch.cat([part.flatten() for part in parts]).numpy())

    def joined(
        self, name: str, members: Sequence[str], order: npt.NDArray[np.int64] | None = None, wide: int | None = None
    ) -> None:
        """The rows of these members, named without .weight, as one matrix; see `matrix`. Their biases beside it."""
        self.matrix(name, [self.head.tensors[f"{member}.weight"] for member in members], order, wide)
        if f"{members[0]}.bias" in self.head.tensors:
            biases = torch.cat([self.head.floats(f"{member}.bias") for member in members])
            self.vector(f"{name}.bias", [_placed(biases[:, None], order, 1)])

    def matrix(
        self,
        name: str,
        parts: Sequence[Stored],
        order: npt.NDArray[np.int64] | None = None,
        wide: int | None = None,
        end: bool = False,
    ) -> None:
        """The rows of `parts` in `order` (-1 for a row of zeros) as one matrix, `wide` columns of it; `end` says that
        it is a vocabulary's."""
        format = self._end if end else self._format
        cols = wide or parts[0].shape[1]
        packed: Iterable[Bytes]
        if format == "int8":
            eights = [part if isinstance(part, Rows8) else Rows8(*int8.quantise(part)) for part in parts]
            codes = _placed(torch.cat([part.codes for part in eights]), order, cols)
            scales = _placed(torch.cat([part.scales for part in eights])[:, None], order, 1)[:, 0]
            out = np.empty(ext.packed_bytes("int8", len(codes), cols), np.uint8)
            ext.pack_int8(codes.numpy(), scales.contiguous().numpy(), out)
            packed = [out]
        else:
            floats = [part.floats() if isinstance(part, Rows8) else part.float() for part in parts]
            packed = pieces_of(_placed(torch.cat(floats), order, cols), format, f"{name} of the head")
        rows = sum(part.shape[0] for part in parts) if order is None else len(order)
        self._writer.matrix(name, format, rows, cols, packed)

    def packed(self) -> PackedModel:
        arena = ext.Arena(self._writer.size)
        arena.view()[:] = np.frombuffer(self._file.getbuffer(), np.uint8)
        return PackedModel(arena, self._writer.entries, {}, self._writer.checksum)


def _placed(values: Tensor, order: npt.NDArray[np.int64] | None, cols: int) -> Tensor:
    """Rows in order, zeros where it says -1, zeros beyond their own columns."""
    if order is not None:
        at = torch.from_numpy(order)
        values = values[at.clamp_min(0)] * (at >= 0).to(values.dtype)[:, None]
    return F.pad(values, (0, cols - values.shape[1])).contiguous()
