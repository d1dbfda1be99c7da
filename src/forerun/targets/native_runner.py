"""Networks run by the compiled extension: one native call a forward, whatever the batch, its trees and its chunks.

Python's part of a step is to say which tokens, where, and under which parents: lists of whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forerun.cache.view import Part
from forerun.core.errors import CapacityError, SpecError
from forerun.core.vocabulary import Vocabulary
from forerun.models.config import ModelConfig
from forerun.models.native import network
from forerun.native import ext
from forerun.native.packed import PackedModel
from forerun.native.tuner import Forwards
from forerun.native.vocab import NativeVocabulary
from forerun.targets.paged import BLOCK_SIZE, PagedTarget
from forerun.targets.runner import Facts, Forward, unknown_block_size

VALUE_BYTES = {"f32": 4, "bf16": 2, "int8": 1}
DTYPES = {"f32": "float32", "bf16": "bfloat16"}  # as torch calls them, so that a spec reads the same on either


class NativeRunner:
    """A `Runner` over packed weights; `kv` is the format of keys and values (auto: f32 for f32 weights, else bf16).

    `max_len` is the context that rotations are made for (None: what the model was made for), `layers` how many of the
    first layers run (None: all).
    """

    def __init__(
        self, packed: PackedModel, *, kv: str = "auto", max_len: int | None = None, layers: int | None = None
    ) -> None:
        config = ModelConfig.from_hf(packed.config)
        weights = max(packed.formats, key=lambda format: packed.formats[format])
        if kv == "auto":
            kv = "f32" if set(packed.formats) == {"f32"} else "bf16"
        layers = config.layers if layers is None else layers
        self.packed, self.config, self.kv_format = packed, config, kv
        self.vocabulary: Vocabulary = NativeVocabulary()
        self._forwards = Forwards()
        self._max_len = max_len or config.max_len
        self._facts = Facts(
            layers=layers,
            hidden_size=config.hidden_size,
            vocab_rows=config.vocab_size,
            max_len=self._max_len,
            token_bytes=layers * config.kv_heads * _head_bytes(config.head_dim, kv),
            weight_bytes=_read(packed, layers),
            dtype=DTYPES.get(weights, weights),
            device="cpu",
        )

    @property
    def facts(self) -> Facts:
        return self._facts

    def open(self, blocks: int, block_size: int, vocab: int) -> int:
        if block_size != BLOCK_SIZE:
            raise unknown_block_size("the native runtime", block_size, BLOCK_SIZE)
        config, layers = self.config, self._facts.layers
        try:
            self._memory = ext.KV(layers, config.kv_heads, config.head_dim, blocks, self.kv_format)
        except (MemoryError, OverflowError, TypeError) as error:  # the last two: a size past 64 bits
            slots = blocks * BLOCK_SIZE
            raise CapacityError(
                f"no memory for the keys and values of {slots} tokens "
                f"({slots * self._facts.token_bytes / 2**20:.0f} MiB on cpu): ask for fewer kv_tokens"
            ) from error
        self._vocab = vocab
        self._programs: dict[tuple[int, ...], ext.Program] = {(): self._program(())}
        return self._memory.nbytes

    def _program(self, taps: tuple[int, ...]) -> ext.Program:
        """The program that hands out these taps."""
        return network(
            self.packed,
            self.config,
            layers=self._facts.layers,
            vocab=self._vocab,
            max_len=self._max_len,
            isa=ext.isa(),
            taps=taps,
        )

    def forward(self, parts: Sequence[Part], tokens: list[int], taps: tuple[int, ...]) -> Forward:
        if taps not in self._programs:
            self._programs[taps] = self._program(taps)
        items = [(part.start, part.certain, part.seen, part.tree.parents, part.table.blocks) for part in parts]
        try:
            logits, first_best, hidden = self._forwards.run(self._programs[taps], self._memory, tokens, items)
        except MemoryError as error:
            raise CapacityError(
                f"no memory for a forward of {len(tokens)} tokens: read prompts in smaller pieces (chunk)"
            ) from error
        return Forward(
            torch.from_numpy(logits),
            first_best,
            None if hidden is None else self._in_order(torch.from_numpy(hidden), taps),
        )

    def _in_order(self, hidden: Tensor, taps: tuple[int, ...]) -> Tensor:
        """Tapped states as they were asked for; they come by ascending layer, each once."""
        ascending = sorted(set(taps))
        if taps == tuple(ascending):
            return hidden
        layers = hidden.view(-1, len(ascending), self._facts.hidden_size)
        return layers[:, [ascending.index(tap) for tap in taps]].flatten(1)

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        self._memory.move(sources, targets)

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        for source, target in copies:
            self._memory.copy_block(source, target)

    def first(self, layers: int) -> NativeRunner:
        return NativeRunner(self.packed, kv=self.kv_format, max_len=self._max_len, layers=layers)


def _read(packed: PackedModel, layers: int) -> int:
    """Bytes of the first `layers` layers and the end."""
    later = {str(i) for i in range(layers, ModelConfig.from_hf(packed.config).layers)}
    parts = ((name.split(".")[0], entry.nbytes) for name, entry in packed.entries.items())
    return sum(nbytes for part, nbytes in parts if part != "embedding" and part not in later)


def load(
    packed: PackedModel,
    *,
    kv: str = "auto",
    vocab_size: int | None = None,
    kv_tokens: int | None = None,
    max_len: int | None = None,
    reuse: bool = True,
) -> PagedTarget:
    """A `PagedTarget` over packed weights; see there for the sizes, and `NativeRunner` for `kv`.

    Raises SpecError for a max_len that cannot be, CapacityError for too little memory.
    """
    longest = ModelConfig.from_hf(packed.config).max_len
    if max_len is not None and not 1 <= max_len <= longest:
        raise SpecError(f"max_len is {max_len}, the model reaches {longest} tokens: allowed 1..{longest}")
    return PagedTarget(
        NativeRunner(packed, kv=kv, max_len=max_len),
        name=packed.name,
        fingerprint=packed.fingerprint,
        vocab_size=vocab_size,
        kv_tokens=kv_tokens,
        max_len=max_len,
        reuse=reuse,
    )


def _head_bytes(head_dim: int, kv: str) -> int:
    """One token's key and value in one head; values are padded to 16 dimensions, int8 vectors have a scale each."""
    padded = -(-head_dim // 16) * 16
    return (head_dim + padded) * VALUE_BYTES[kv] + (8 if kv == "int8" else 0)
