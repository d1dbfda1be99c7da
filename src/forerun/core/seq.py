"""The running sequence: the one noun that changes, and only the engine changes it.

A block of tokens is walked one by one, as plain decoding would have produced it, so speculation never changes what
stops an answer, what is counted or what is returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch import Tensor

from forerun.core.history import History
from forerun.core.noise import child_seed, fresh_seed
from forerun.core.params import SamplingParams, legal

FinishReason = Literal["stop", "length", "cancelled", "error"]


class Ear(Protocol):
    """Listens to an answer's tokens, for its text."""

    def hear(self, token: int) -> bool:
        """Take the next token; True if a stop string is complete."""
        ...


@dataclass(frozen=True, slots=True)
class Logprobs:
    """The target's own log-probabilities at one position, before any processing."""

    token: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer and where it came from."""

    id: int
    drafted: bool = False
    """It was guessed, and the target agreed."""
    logprobs: Logprobs | None = None


@dataclass(slots=True)
class SeqStats:
    """What speculation did for one sequence. Rates are of counts pooled, never means of rates."""

    target_passes: int = 0
    prefilled: int = 0
    reused: int = 0
    """Prompt tokens that were already in memory."""
    preempted: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    dropped: int = 0
    """Steps whose guess, or a part of it, was dropped for a fault of the drafter's."""
    drafted_at: list[int] = field(default_factory=list)
    """Steps that drafted at least to depth i + 1."""
    accepted_at: list[int] = field(default_factory=list)
    """Steps that accepted at least to depth i + 1."""
    added_s: float = 0.0
    """When the request came, when its first forward began, its first token was out and it ended (perf_counter)."""
    started_s: float = 0.0
    first_s: float = 0.0
    ended_s: float = 0.0
    first_tokens: int = 0
    """Tokens of the first step that gave any."""
    seconds: dict[str, float] = field(default_factory=dict)
    """This sequence's share of each phase: a step's time divided among its batch."""

    @property
    def tau(self) -> float | None:
        """Tokens per target pass, bonus included; None before the first pass."""
        return self.emitted / self.target_passes if self.target_passes else None

    @property
    def acceptance(self) -> float | None:
        """Accepted of drafted tokens, 0..1; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens over the time from first forward to end, prompt included; None before the end."""
        elapsed = self.ended_s - self.started_s
        return self.emitted / elapsed if self.started_s and elapsed > 0 else None

    @property
    def prompt_tokens_per_s(self) -> float | None:
        """Prompt tokens that were read over the time from first forward to first token; None before it, and where the
        prompt was read more than once."""
        elapsed = self.first_s - self.started_s
        read = self.prefilled if self.first_s and not self.preempted else 0
        return read / elapsed if read and elapsed > 0 else None

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Tokens a second after the step that gave the first ones; None before there are any."""
        ms = self.decode_ms_per_token
        return 1e3 / ms if ms else None

    @property
    def decode_ms_per_token(self) -> float | None:
        """Milliseconds per token after the step that gave the first ones; None before there are any."""
        tokens = self.emitted - self.first_tokens
        return 1e3 * (self.ended_s - self.first_s) / tokens if tokens and self.ended_s else None

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the request to its first token, waiting included; None before it."""
        return self.first_s - self.added_s if self.first_s else None

    def count(self, drafted: int, depth: int, accepted: int, emitted: int) -> None:
        """Book one step: nodes drafted and the deepest of them, drafts that stand, tokens gained."""
        self.target_passes += 1
        self.drafted += drafted
        self.accepted += accepted
        self.emitted += emitted
        for counts, upto in ((self.drafted_at, depth), (self.accepted_at, accepted)):
            counts.extend([0] * (max(depth, accepted) - len(counts)))
            for i in range(upto):
                counts[i] += 1

    def spend(self, seconds: Mapping[str, float]) -> None:
        """Add to the time of each phase."""
        for phase, value in seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + value


class Seq:
    """One answer in the making: prompt and output tokens, how to draw, and whether it has ended.

    The target holds, between steps, everything but the last token, which is the root of the next step.
    """

    def __init__(
        self,
        id: int,
        prompt: Iterable[int],
        params: SamplingParams,
        max_len: int,
        eos_ids: frozenset[int] = frozenset(),
        index: int = 0,
        ear: Ear | None = None,
    ) -> None:
        self.id = id
        self.index = index
        self.params = params
        self.max_len = max_len
        self.tokens = list(prompt)
        self.prompt_len = len(self.tokens)
        seed = fresh_seed() if params.seed is None else params.seed
        self.seed = child_seed(seed, index)
        endless = params.ignore_eos and params.allowed is None  # a grammar says itself when the answer is whole
        self.stop_ids = params.stop_token_ids if endless else eos_ids | params.stop_token_ids
        self.finish_reason: FinishReason | None = None
        self.error: Exception | None = None
        self.fault = ""
        self.output: list[Token] = []
        self.stats = SeqStats()
        self._ear = ear
        self._histories: dict[object, History] = {}

    def __repr__(self) -> str:
        state = self.finish_reason or "running"
        return f"<Seq {self.id}: {self.prompt_len} + {len(self.output)} tokens, {state}>"

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def last(self) -> int:
        """The newest token: root of the next step."""
        return self.tokens[-1]

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def remaining(self) -> int:
        """Tokens that may still be emitted, by max_tokens and by the context."""
        context = self.max_len - len(self.tokens)
        limit = self.params.max_tokens
        return context if limit is None else min(context, limit - len(self.output))

    @property
    def room(self) -> int:
        """Drafted tokens that can still be of use: the bonus after them must fit too."""
        return max(0, self.remaining - 1)

    @property
    def token_ids(self) -> list[int]:
        """The answer so far."""
        return self.tokens[self.prompt_len :]

    def history(self, like: Tensor) -> History:
        """What was said so far, for rows of this size, kind and place."""
        kind = (like.shape[0], like.dtype, like.device)
        if kind not in self._histories:
            self._histories[kind] = History(self.tokens, self.prompt_len, like)
        return self._histories[kind]

    def ask(self, path: Sequence[int]) -> Tensor | list[int] | None:
        """What the grammar's hook allows after `path`, drafted tokens that follow the answer's own: a bool mask, ids or
        None. What it raises is noted as this answer's own fault."""
        if self.params.allowed is None:
            return None
        try:
            return legal(self.params.allowed([*self.token_ids, *path]))
        except Exception as error:
            self.error = error
            raise

    def fail(self, error: Exception) -> None:
        """End the answer with an error of its own."""
        self.error, self.finish_reason = error, "error"

    def drop(self, fault: str) -> None:
        """Note that a guess for this answer, or a part of one, is dropped in this step, and what was wrong with it."""
        self.fault = self.fault or fault

    def replay(self, ear: Ear | None) -> None:
        """Hear the answer's tokens anew with a fresh ear: growing may have been broken off between two lines."""
        output, ended = self.output, self.finish_reason
        del self.tokens[self.prompt_len :]
        self._histories.clear()
        self.output, self.finish_reason, self._ear = [], None, ear
        self.stats.emitted = self.extend(output)
        self.finish_reason = ended or self.finish_reason

    def extend(self, tokens: Iterable[Token]) -> int:
        """Append tokens one by one until one of them ends the answer; returns how many were taken."""
        taken = 0
        for token in tokens:
            if self.finished:
                break
            self._append(token)
            taken += 1
        return taken

    def _append(self, token: Token) -> None:
        self.tokens.append(token.id)
        self.output.append(token)
        try:
            if token.id in self.stop_ids or (self._ear is not None and self._ear.hear(token.id)):
                self.finish_reason = "stop"
            elif self.remaining <= 0:
                self.finish_reason = "length"
        except Exception as error:
            self.fail(error)
