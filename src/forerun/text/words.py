"""A tokenizer, its chat template and its incremental decoder as one thing: what the engine calls words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forerun.text.chat import render
from forerun.text.stream import TextStream
from forerun.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextWords:
    """Implements `core.text.Words` over a tokenizer."""

    tokenizer: Tokenizer

    @property
    def size(self) -> int:
        return self.tokenizer.size

    @property
    def has_template(self) -> bool:
        return self.tokenizer.chat_template is not None

    def encode(self, text: str, *, bos: bool) -> list[int]:
        """Token ids of a text, with a beginning-of-text token if `bos` and the model wants one."""
        return self.tokenizer.encode(text, bos=bos)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        return self.tokenizer.decode(ids)

    def token_bytes(self, id: int) -> bytes:
        """Raw bytes of one token."""
        return self.tokenizer.token_bytes(id)

    def chat(self, messages: Sequence[Mapping[str, object]]) -> list[int]:
        """Token ids of a conversation up to the assistant's turn; the template brings its own special tokens."""
        return self.tokenizer.encode(render(self.tokenizer, messages), bos=False)

    def listen(self, stops: tuple[str, ...]) -> TextStream:
        """An incremental decoder for one answer."""
        return TextStream(self.tokenizer, stops)
