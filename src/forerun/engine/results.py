"""What comes back: events while an answer grows, a result when it is done."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.core.seq import FinishReason, SeqStats, Token


@dataclass(frozen=True, slots=True)
class Event:
    """News of one answer: text that is safe to show, the tokens of one step, and the end if it came."""

    request_id: int
    index: int
    text: str
    """Whole characters only, and nothing that may yet turn out to be a stop string."""
    tokens: tuple[Token, ...]
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as a bill would count them: rejected drafts are nobody's tokens."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Choice:
    """One finished answer."""

    index: int
    text: str
    tokens: tuple[Token, ...]
    """With a stop token at the end if one was drawn; it has no text."""
    finish_reason: FinishReason
    stats: SeqStats

    @property
    def token_ids(self) -> list[int]:
        return [token.id for token in self.tokens]


@dataclass(frozen=True, slots=True)
class Result:
    """All answers to one request; most requests ask for one, whose fields stand here too."""

    request_id: int
    choices: tuple[Choice, ...]
    usage: Usage

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def token_ids(self) -> list[int]:
        return self.choices[0].token_ids

    @property
    def tokens(self) -> tuple[Token, ...]:
        return self.choices[0].tokens

    @property
    def finish_reason(self) -> FinishReason:
        return self.choices[0].finish_reason

    @property
    def stats(self) -> SeqStats:
        return self.choices[0].stats
