"""A tokenizer, its chat template and its incremental decoder as one thing: what the engine calls words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from forerun.core.errors import SpecError
from forerun.text.chat import NOTHING, conversation
from forerun.text.stream import TextStream
from forerun.text.tokenizer import Tokenizer
from forerun.text.turns import Turns, turns_of


@dataclass(frozen=True)
class TextWords:
    """Implements `core.text.Words` over a tokenizer."""

    tokenizer: Tokenizer

    @property
    def size(self) -> int:
        return self.tokenizer.size

    @property
    def has_template(self) -> bool:
        return self.tokenizer.chat_template is not None

    def encode(self, text: str, *, bos: bool, parse_special: bool = True) -> list[int]:
        """Token ids of a text, with a beginning-of-text token if `bos` and the model wants one.

        Names of control tokens in it are those tokens if `parse_special`, else text.
        """
        return self.tokenizer.encode(text, bos=bos) if parse_special else self.tokenizer.encode_text(text, bos=bos)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        return self.tokenizer.decode(ids)

    def token_bytes(self, id: int) -> bytes:
        """Raw bytes of one token."""
        return self.tokenizer.token_bytes(id)

    def chat(
        self,
        messages: object,
        *,
        tools: object = None,
        documents: object = None,
        continue_final_message: bool | None = None,
        add_generation_prompt: bool | None = None,
        parse_special: bool = False,
        chat_template_kwargs: Mapping[str, object] = NOTHING,
        **variables: object,
    ) -> list[int]:
        """Token ids of a conversation up to the assistant's turn, or to the end of its last message if that is the
        assistant's: the answer goes on from there. The template brings its own special tokens.

        `tools` and `documents` are given to the template, and so are `chat_template_kwargs` and all other names
        (enable_thinking, …). Names of control tokens in the messages are text unless `parse_special`. SpecError for
        what the template would leave out, and for messages that it cannot tell.
        """
        told = conversation(
            self.tokenizer,
            messages,
            tools=tools,
            documents=documents,
            continue_final_message=continue_final_message,
            add_generation_prompt=add_generation_prompt,
            variables={**chat_template_kwargs, **variables},
        )
        return told.ids(parse_special=parse_special)

    def stop_ids(self, text: str) -> frozenset[int]:
        """The control token of this name, which no text shows; SpecError if the text holds one and is more than it."""
        tokenizer = self.tokenizer
        if text in tokenizer.controls:
            found = tokenizer.control_id(text)
            return frozenset() if found is None else frozenset({found})
        if held := next((m[0] for m in tokenizer.added.finditer(text) if m[0] in tokenizer.controls), None):
            raise SpecError(
                f"the stop text {text!r} holds the control token {held}, which no text shows: give it alone"
            )
        return frozenset()

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer: those that the tokenizer's files name, and control tokens of that meaning."""
        return self.tokenizer.eos_ids | self._turns.ends

    def listen(self, stops: tuple[str, ...], prompt: Sequence[int] = ()) -> TextStream:
        """An incremental decoder for one answer to `prompt`."""
        return TextStream(self.tokenizer, stops, lead=self._own_space(prompt))

    def _own_space(self, prompt: Sequence[int]) -> bool:
        """Whether a space that an answer to `prompt` begins with is none of the answer's.

        SentencePiece begins a text with a space of its own, some tokenizers also after each control token, and many
        templates write one between the prompt and the answer.
        """
        tokenizer = self.tokenizer
        if not tokenizer.strip_space:
            return False
        if not any(tokenizer.token_bytes(i) for i in prompt):
            return True
        name = tokenizer.name(prompt[-1])
        if name and tokenizer.spaced_after(name):
            return True
        tail = self._turns.tail
        return bool(tail) and "".join(map(tokenizer.shown, prompt[-len(tail) :])).endswith(tail)

    @cached_property
    def _turns(self) -> Turns:
        return turns_of(self.tokenizer)
