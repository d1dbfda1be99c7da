"""An engine over toys in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.control.fixed import Fixed
from forerun.core.errors import SpecError
from forerun.core.plan import Plan
from forerun.core.protocols import Controller, Drafter, Target, Verifier
from forerun.core.text import Words
from forerun.drafters.none import NoDrafter
from forerun.engine.engine import Engine
from forerun.engine.step import Parts
from forerun.testing.scripted import Guess, ScriptedDrafter, by_position
from forerun.testing.toy import NextLaw, ToyTarget, scripted_law
from forerun.text.stream import TextStream
from forerun.verify.auto import Auto


def toy_engine(
    target: Target | NextLaw,
    drafter: Drafter | Guess | None = None,
    *,
    depth: int = 4,
    width: int = 1,
    vocab_size: int = 64,
    max_len: int = 4096,
    verify: Verifier | None = None,
    controller: Controller | None = None,
    words: Words | None = None,
    eos_ids: Sequence[int] = (2,),
    chunk: int = 512,
    max_batch: int = 64,
) -> Engine:
    """An engine over a toy target (or its law) with a drafter (or its guess); without one it decodes plainly."""
    none = drafter is None
    return Engine(
        Parts(_target(target, vocab_size, max_len), _drafter(drafter), verify or Auto()),
        controller or Fixed(Plan.none() if none else Plan(depth, width=width)),
        words=words,
        eos_ids=frozenset(eos_ids),
        chunk=chunk,
        max_batch=max_batch,
    )


def _target(target: Target | NextLaw, vocab_size: int, max_len: int) -> Target:
    return ToyTarget(target, vocab_size, max_len) if callable(target) else target


def _drafter(drafter: Drafter | Guess | None) -> Drafter:
    if drafter is None:
        return NoDrafter()
    return ScriptedDrafter(drafter) if callable(drafter) else drafter


def scripted(
    script: Sequence[int],
    guess: Sequence[int] | None = None,
    *,
    depth: int = 4,
    prompt_len: int = 1,
    vocab_size: int = 64,
    max_len: int = 4096,
    eos_ids: Sequence[int] = (2,),
    words: Words | None = None,
) -> Engine:
    """An engine whose target writes `script` after a prompt and whose drafter proposes `guess` by position."""
    law = scripted_law(script, prompt_len, vocab_size)
    drafter = None if guess is None else by_position(guess)
    return toy_engine(law, drafter, depth=depth, vocab_size=vocab_size, max_len=max_len, eos_ids=eos_ids, words=words)


class Letters:
    """A tokenizer for tests: token id -> fixed bytes; texts are encoded longest piece first."""

    def __init__(self, pieces: Sequence[bytes], special: Sequence[int] = ()) -> None:
        self._pieces = list(pieces)
        self._special = frozenset(special)

    @property
    def size(self) -> int:
        return len(self._pieces)

    @property
    def has_template(self) -> bool:
        return False

    @property
    def strip_space(self) -> bool:
        return False

    def encode(self, text: str, *, bos: bool, parse_special: bool = True) -> list[int]:
        """Greedy longest match over the pieces."""
        data, ids = text.encode(), list[int]()
        while data:
            fits = [i for i, piece in enumerate(self._pieces) if piece and data.startswith(piece)]
            if not fits:
                raise SpecError(f"no token writes {data[:4]!r}")
            ids.append(max(fits, key=lambda i: len(self._pieces[i])))
            data = data[len(self._pieces[ids[-1]]) :]
        return ids

    def token_bytes(self, token: int) -> bytes:
        """Raw bytes of a token; none for special ones."""
        return b"" if token in self._special else self._pieces[token]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def chat(self, messages: Sequence[Mapping[str, object]], **options: Any) -> list[int]:
        """There is no template."""
        raise SpecError("these letters have no chat template")

    def stop_ids(self, text: str) -> frozenset[int]:
        """Its special tokens have no names."""
        return frozenset()

    def listen(self, stops: tuple[str, ...], prompt: Sequence[int] = ()) -> TextStream:
        """An incremental decoder."""
        return TextStream(self, stops)
