"""A head in memory: its config, its tensors by their names here, and which words of the target it can guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from forerun.core.errors import LoadError
from forerun.models.heads.config import HeadConfig
from forerun.models.heads.words import check_words


class Rows8(NamedTuple):
    """A matrix as whole numbers: row n is codes[n] * scales[n]; codes int8 [N, K], scales float32 [N]."""

    codes: Tensor
    scales: Tensor

    @property
    def shape(self) -> torch.Size:
        return self.codes.shape

    def floats(self) -> Tensor:
        """Its values, float32."""
        return self.codes.float() * self.scales[:, None]


Stored = Tensor | Rows8


@dataclass(frozen=True, slots=True)
class Head:
    """A checked head. `words` [draft_vocab] are the target's ids of its own, in any order; None if it knows all.

    LoadError for tensors that are missing, left over, or of another shape than the config asks for, and for words that
    are not ids of the target, each once.
    """

    config: HeadConfig
    tensors: Mapping[str, Stored]
    words: Tensor | None = None
    fingerprint: str = ""
    """Of the target that it was trained for; empty if nobody wrote it down."""
    card: Mapping[str, object] = field(default_factory=dict)
    """How it was made, as far as its folder says."""

    def __post_init__(self) -> None:
        wanted = self.config.shapes()
        if any(name in self.tensors for name in self.config.ends):
            wanted |= dict.fromkeys(self.config.ends, (self.config.draft_vocab, self.config.hidden_size))
        for name, shape in wanted.items():
            check_shape(name, self.tensors, shape)
        left = sorted(set(self.tensors) - set(wanted))
        if left:
            shown = ", ".join(f"{name} {list(self.tensors[name].shape)}" for name in left[:5])
            raise LoadError(f"{len(left)} tensor(s) have no place in this {self.config.kind} head: {shown}")
        self._check_words()

    def _check_words(self) -> None:
        c, words = self.config, self.words
        if words is None:
            if c.reduced:
                raise LoadError(
                    f"the head knows {c.draft_vocab} of {c.vocab_size} words, but not which: d2t is missing"
                )
            return
        if words.shape != (c.draft_vocab,):
            raise LoadError(f"d2t has shape {list(words.shape)}, the config asks for [{c.draft_vocab}]")
        check_words("d2t", words, c.vocab_size)

    @property
    def kind(self) -> str:
        return self.config.kind

    @property
    def own_end(self) -> bool:
        """Whether it brings vocabulary ends of its own."""
        return self.config.ends[0] in self.tensors

    @property
    def tied(self) -> bool:
        """Whether the end that it brings is its own embedding, its words' rows of it."""
        end, table = (self.tensors.get(name) for name in (self.config.ends[0], "embed_tokens.weight"))
        if not isinstance(end, Tensor) or not isinstance(table, Tensor):
            return False
        return torch.equal(end, table if self.words is None else table[self.words])

    def floats(self, name: str) -> Tensor:
        """A tensor as float32."""
        stored = self.tensors[name]
        return stored.floats() if isinstance(stored, Rows8) else stored.float()

    @property
    def parameters(self) -> int:
        """Numbers that it holds."""
        return sum(stored.shape.numel() for stored in self.tensors.values())


def check_shape(name: str, tensors: Mapping[str, Stored], shape: tuple[int, ...]) -> None:
    """LoadError unless that tensor is there and shaped so."""
    if name not in tensors:
        raise LoadError(
            f"tensor {name!r} is missing from the head (expected shape {list(shape)}; it holds {len(tensors)} others)"
        )
    got = tuple(tensors[name].shape)
    if got != shape:
        raise LoadError(
            f"tensor {name!r} of the head has shape {list(got)}, its config asks for {list(shape)}: config and weights "
            "do not belong together"
        )
