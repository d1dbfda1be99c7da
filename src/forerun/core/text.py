"""What the engine needs of a tokenizer; the one that reads files lives in `text`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Words(Protocol):
    """Between text and token ids."""

    @property
    def size(self) -> int:
        """Real tokens."""
        ...

    @property
    def has_template(self) -> bool:
        """Whether it knows how the model wants conversations told."""
        ...

    def encode(self, text: str, *, bos: bool, parse_special: bool = True) -> list[int]:
        """Token ids of a text; names of control tokens in it are those tokens if `parse_special`, else text."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def token_bytes(self, id: int) -> bytes: ...

    def chat(self, messages: Sequence[Mapping[str, object]], **options: Any) -> list[int]:
        """Token ids of a conversation up to the assistant's answer."""
        ...

    def stop_ids(self, text: str) -> frozenset[int]:
        """Tokens that are this stop text and that no text shows; SpecError if they are only a part of it."""
        ...

    def listen(self, stops: tuple[str, ...], prompt: Sequence[int] = ()) -> Listener:
        """An incremental decoder for one answer to `prompt`."""
        ...


class Listener(Protocol):
    """Text of one answer as it grows."""

    def hear(self, token: int) -> bool:
        """Take a token; True if a stop string is complete."""
        ...

    def take(self) -> str:
        """Text that is safe to show and was not taken before."""
        ...

    def finish(self) -> str:
        """What is left at the end."""
        ...
