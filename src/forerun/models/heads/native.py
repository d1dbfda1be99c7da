"""Heads as operations for the compiled runtime: the same as `recurrent.py` and `medusa.py`, told to a machine.

Embeddings, and the vocabulary's end where a head has none of its own, are the packed target's, in whatever format.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from forerun.cache.view import Part
from forerun.core.errors import CapacityError
from forerun.core.vocabulary import Vocabulary
from forerun.models.config import ModelConfig
from forerun.models.heads.config import MedusaConfig, RecurrentConfig
from forerun.models.heads.head import Head
from forerun.models.heads.packed import pack_head, rows_of_end
from forerun.models.heads.runner import HeadForward
from forerun.models.native import Layers, Weights, rotation
from forerun.native import ext
from forerun.native.packed import PackedModel
from forerun.native.tuner import Forwards
from forerun.native.vocab import NativeVocabulary


def bytes_read(packed: PackedModel, target: PackedModel) -> int:
    """Bytes of a head that a forward reads whole, and of the target's own head where it serves."""
    own = {name: entry.nbytes for name, entry in packed.entries.items() if name != "embedding"}
    ends = any(name.endswith(".end") for name in own)
    return sum(own.values()) + (0 if ends else target.matrix("head").nbytes)


class NativeRecurrent:
    """A `RecurrentRunner` beside a packed target; `format` of the head's matrices is one of FORMATS."""

    def __init__(self, head: Head, target: PackedModel, format: str = "q4") -> None:
        assert isinstance(head.config, RecurrentConfig)
        self.head, self.config = head, head.config
        self.vocabulary: Vocabulary = NativeVocabulary()
        self._forwards = Forwards()
        self._target = target
        self._packed = pack_head(head, format, lambda ids: rows_of_end(target, ids))
        self._kv_format = "f32" if format == "f32" else "bf16"
        self._programs = {own: self._program(own) for own in (False, True)}

    @property
    def weight_bytes(self) -> int:
        return bytes_read(self._packed, self._target)

    def open(self, blocks: int, block_size: int) -> int:
        c = self.config
        try:
            self._memory = ext.KV(c.layers, c.kv_heads, c.head_dim, blocks, self._kv_format)
        except (MemoryError, OverflowError, TypeError) as error:  # the last two: a size past 64 bits
            raise CapacityError(
                f"no memory for a drafting head's keys and values of {blocks * block_size} tokens: ask for a smaller "
                "window, or fewer kv_tokens"
            ) from error
        return self._memory.nbytes

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        for source, target in copies:
            self._memory.copy_block(source, target)

    def forward(self, parts: Sequence[Part], tokens: Sequence[int], features: Tensor, own: bool) -> HeadForward:
        items = [(part.start, part.certain, part.seen, part.tree.parents, part.table.blocks) for part in parts]
        rows = np.ascontiguousarray(features.numpy(), np.float32)
        logits, best, states = self._forwards.run(self._programs[own], self._memory, list(tokens), items, rows)
        assert states is not None
        return HeadForward(torch.from_numpy(logits), best, torch.from_numpy(states))

    def _program(self, own: bool) -> ext.Program:
        """Slots of the target's features, or of the head's own."""
        c, net = self.config, ext.Program(ext.isa())
        mine, theirs = Weights(net, self._packed), Weights(net, self._target)
        layer = Layers(net, mine, c)
        rotation(net, c.rope, c.head_dim, c.max_len)
        joined = net.buffer(c.hidden_size + (c.hidden_size if own or c.taps else c.features))
        source, norm = self._enter(net, mine, theirs, layer, joined, own)
        for i in range(c.layers):
            read, before = (source, norm) if i == 0 else (layer.x, mine.vector(f"{i}.attention_norm"))
            layer(i, read, before, window=c.window(i) or 0)
        last = net.buffer(c.hidden_size)
        norm = mine.maybe("norm")
        if c.norm_output:
            net.norm(layer.x, layer.x, norm, c.norm_eps)
            norm = -1
        net.tap(layer.x)
        net.pick(layer.x, last)
        end = mine.matrix("0.end") if "0.end" in self._packed else theirs.matrix("head")
        net.logits(last, end, norm=norm, eps=c.norm_eps)
        return net

    def _enter(
        self, net: ext.Program, mine: Weights, theirs: Weights, layer: Layers, joined: int, own: bool
    ) -> tuple[int, int]:
        """From (token, feature) to what layer 0's attention reads, and its norm; what it is added to is in layer.x."""
        c = self.config
        embedded = net.buffer(c.hidden_size)
        if c.own_embedding:
            net.embed(mine.matrix("embedding"), embedded)
        else:
            tied = ModelConfig.from_hf(self._target.config).tied
            table = theirs.matrix("head" if tied else "embedding")
            net.embed(table, embedded, stand_in=mine.maybe("mask"), id=-1 if c.mask_id is None else c.mask_id)
        if c.kind == "eagle":
            feature = net.buffer(c.features)
            net.feature(feature)
            net.copy(embedded, joined)
            net.copy(feature, joined, c.hidden_size)
            net.linear(joined, layer.x, mine.matrix("fc"), bias=mine.maybe("fc.bias"))
            return layer.x, -1
        if c.kind == "mtp":
            feature = net.buffer(c.features)
            net.feature(feature)
            net.norm(embedded, joined, mine.vector("enorm"), c.norm_eps)
            net.norm(feature, joined, mine.vector("hnorm"), c.norm_eps, c.hidden_size)
            net.linear(joined, layer.x, mine.matrix("fc"), bias=mine.maybe("fc.bias"))
            return layer.x, mine.vector("0.attention_norm")
        if own:
            net.feature(layer.x)
        else:
            self._lift(net, mine, layer.x)
        net.norm(embedded, joined, mine.vector("0.attention_norm"), c.norm_eps)
        net.norm(layer.x, joined, mine.vector("0.feature_norm"), c.norm_eps, c.hidden_size)
        if c.norm_before_residual:
            net.norm(layer.x, layer.x, mine.vector("0.feature_norm"), c.norm_eps)
        return joined, -1

    def _lift(self, net: ext.Program, mine: Weights, out: int) -> None:
        """All taps of a token to one feature."""
        c = self.config
        taps = net.buffer(c.features)
        if c.fc_norm:
            for i in range(len(c.taps)):
                tap = net.buffer(c.target_size)
                net.feature(tap)
                net.norm(tap, taps, mine.vector(f"fc_norm.{i}"), c.norm_eps, i * c.target_size)
        else:
            net.feature(taps)
        norm = mine.maybe("input_norm")
        net.linear(taps, out, mine.matrix("fc"), bias=mine.maybe("fc.bias"), norm=norm, eps=c.norm_eps)


class NativeMedusa:
    """A `MedusaRunner` beside a packed target."""

    def __init__(self, head: Head, target: PackedModel, format: str = "q4") -> None:
        assert isinstance(head.config, MedusaConfig)
        self.head, self.config = head, head.config
        self.vocabulary: Vocabulary = NativeVocabulary()
        self._forwards = Forwards()
        self._target = target
        self._packed = pack_head(head, format, lambda ids: rows_of_end(target, ids))
        self._net = self._program()
        self._memory = ext.KV(1, 1, 2, 1, "f32")  # nothing is kept; a forward wants a place all the same

    @property
    def weight_bytes(self) -> int:
        return bytes_read(self._packed, self._target)

    def forward(self, features: Tensor) -> Tensor:
        rows = np.ascontiguousarray(features.numpy(), np.float32)
        _, _, found = self._forwards.run(
            self._net, self._memory, [0] * len(rows), [(0, 0, 0, [-1], [0])] * len(rows), rows
        )
        assert found is not None
        return torch.from_numpy(found).view(len(rows), self.config.count, self.config.draft_vocab)

    def _program(self) -> ext.Program:
        c, net = self.config, ext.Program(ext.isa())
        mine, theirs = Weights(net, self._packed), Weights(net, self._target)
        feature, last = net.buffer(c.features), net.buffer(c.features)
        net.feature(feature)
        ends = [mine.matrix(f"{i}.end") for i in range(c.count) if f"{i}.end" in self._packed]
        ends = ends or [theirs.matrix("head")]
        for i in range(c.count):
            state, out = net.buffer(c.hidden_size), net.buffer(c.draft_vocab)
            net.copy(feature, state)
            for j in range(c.blocks):
                block, bias = mine.matrix(f"{i}.block.{j}"), mine.maybe(f"{i}.block.{j}.bias")
                net.linear(state, state, block, bias=bias, then="add_silu")
            net.linear(state, out, ends[i] if len(ends) > 1 else ends[0])
            net.tap(out)
        net.pick(feature, last)
        return net
