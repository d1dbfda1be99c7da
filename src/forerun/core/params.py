"""What a caller may ask of one request, checked before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from forerun.core.errors import SpecError

Allowed = Callable[[Sequence[int]], "Tensor | Sequence[int] | None"]
"""A grammar's hook: output token ids so far -> the ids allowed next, or a bool mask [V], or None for no limit.

A function of the tokens alone: speculation asks about paths that may never be taken, in any order, and a hook that
counts its calls would see drafts. It is never asked past a stop token.
"""

MAX_STOPS = 16
MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to draw an answer. The defaults are greedy decoding until the model ends.

    Raises SpecError, naming the field, for a value that cannot be meant.
    """

    temperature: float = 0.0
    """0 is greedy; otherwise logits are divided by it."""
    top_k: int = 0
    """Keep the k likeliest tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of likeliest tokens whose probability reaches this."""
    min_p: float = 0.0
    """Drop tokens less likely than this share of the likeliest."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens in the prompt or the output (CTRL's)."""
    presence_penalty: float = 0.0
    """Subtracted once from logits of tokens in the output."""
    frequency_penalty: float = 0.0
    """Subtracted from logits of tokens in the output, once per occurrence."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Token id -> added to its logit, -100..100."""
    allowed: Allowed | None = None
    """Which tokens may come next, for grammars."""
    seed: int | None = None
    """64-bit; the same seed gives the same answer, in any batch. None draws one."""
    n: int = 1
    """Independent answers."""
    stop: tuple[str, ...] = ()
    """The text ends before the first of these to appear."""
    stop_token_ids: frozenset[int] = frozenset()
    """Further ids that end the answer, beside the model's own."""
    min_tokens: int = 0
    """No stop token can be drawn before this many tokens are out, unless nothing else may follow, as where `allowed`
    leaves the end alone; stop texts end the answer all the same."""
    max_tokens: int | None = None
    """At most this many tokens; None is up to the context's end."""
    ignore_eos: bool = False
    """Treat the model's end-of-text tokens as ordinary (for benchmarks). Not under a grammar: where `allowed` lets one
    through, the answer is whole and ends."""
    logprobs: int | None = None
    """Log-probabilities of the model's own distribution with this many alternatives each; None is off."""
    prediction: tuple[int, ...] | str = ()
    """Text (or token ids) the caller expects, for the `prediction` drafter. Never changes the answer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _stops(self.stop))
        object.__setattr__(self, "stop_token_ids", frozenset(_token_ids("stop_token_ids", self.stop_token_ids)))
        if not isinstance(self.prediction, str):
            object.__setattr__(self, "prediction", _token_ids("prediction", self.prediction))
        object.__setattr__(self, "logit_bias", {} if self.logit_bias is None else self.logit_bias)
        if not isinstance(self.ignore_eos, bool):
            raise SpecError(f"ignore_eos must be true or false, got {self.ignore_eos!r}")
        if self.allowed is not None and not callable(self.allowed):
            raise SpecError(f"allowed must be a function of the output's token ids, got {self.allowed!r}")
        _number(self, "temperature", 0.0, 100.0)
        _number(self, "top_p", 0.0, 1.0, above=True)
        _number(self, "min_p", 0.0, 1.0)
        _number(self, "repetition_penalty", 0.0, 100.0, above=True)
        _number(self, "presence_penalty", -2.0, 2.0)
        _number(self, "frequency_penalty", -2.0, 2.0)
        _whole(self, "top_k", 0, None)
        _whole(self, "n", 1, 128)
        _whole(self, "min_tokens", 0, None)
        if self.seed is not None:
            _whole(self, "seed", -(1 << 63), (1 << 64) - 1)
        if self.max_tokens is not None:
            _whole(self, "max_tokens", 1, None)
        if self.logprobs is not None:
            _whole(self, "logprobs", 0, MAX_LOGPROBS)
        _bias(self.logit_bias)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise SpecError(f"min_tokens ({self.min_tokens}) exceeds max_tokens ({self.max_tokens})")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def edits_logits(self) -> bool:
        """Whether rows are changed before the temperature, so that the raw argmax is not the answer."""
        return bool(
            self.logit_bias
            or self.allowed
            or self.min_tokens
            or self.repetition_penalty != 1.0
            or self.presence_penalty
            or self.frequency_penalty
        )


def legal(answer: Tensor | Iterable[int] | None) -> Tensor | list[int] | None:
    """A grammar's answer in one of three forms: a bool mask [V], a list of ids, or None for no limit.

    Truth values in a list or a numpy array are a mask too: read as ids they would allow tokens 0 and 1.
    """
    if answer is None or (isinstance(answer, Tensor) and answer.dtype == torch.bool):
        return answer
    values = list(answer.tolist() if hasattr(answer, "tolist") else answer)
    if values and isinstance(values[0], bool):
        return torch.tensor(values, dtype=torch.bool)
    return [int(token) for token in values]


def permits(answer: Tensor | Sequence[int] | None, token: int) -> bool:
    """Whether a grammar's answer lets `token` come next."""
    if answer is None:
        return True
    if isinstance(answer, Tensor) and answer.dtype == torch.bool:
        return token < answer.shape[0] and bool(answer[token])
    return token in answer


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(params: SamplingParams, name: str, low: float, high: float, above: bool = False) -> None:
    value = getattr(params, name)
    fine = (_is_int(value) or isinstance(value, float)) and math.isfinite(value) and low <= value <= high
    if not fine or (above and value == low):
        raise SpecError(f"{name} must be a number {'above' if above else 'from'} {low:g} to {high:g}, got {value!r}")


def _whole(params: SamplingParams, name: str, low: int, high: int | None) -> None:
    value = getattr(params, name)
    if not _is_int(value) or value < low or (high is not None and value > high):
        limit = f"from {low} up" if high is None else f"from {low} to {high}"
        raise SpecError(f"{name} must be a whole number {limit}, got {value!r}")


def _token_ids(name: str, ids: object) -> tuple[int, ...]:
    """The ids as a tuple; None is none."""
    if ids is not None and not isinstance(ids, Iterable):
        raise SpecError(f"{name} takes a list of token ids, got {ids!r}")
    found = () if ids is None else tuple(ids)
    for token in found:
        if not _is_int(token) or token < 0:
            raise SpecError(f"{name} takes token ids (whole numbers from 0), got {token!r}")
    return found


def _stops(stop: object) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else () if stop is None else stop
    if not isinstance(stops, tuple | list) or not all(isinstance(text, str) for text in stops):
        raise SpecError(f"stop takes a text or a list of texts, got {stop!r}")
    if "" in stops:
        raise SpecError("stop: an empty text would end every answer at once; leave it out")
    if len(stops) > MAX_STOPS:
        raise SpecError(f"stop takes at most {MAX_STOPS} texts, got {len(stops)}")
    return tuple(stops)


def _bias(bias: object) -> None:
    if not isinstance(bias, Mapping):
        raise SpecError(f"logit_bias maps token ids to numbers, got {bias!r}")
    for token, value in bias.items():
        if not _is_int(token) or token < 0:
            raise SpecError(f"logit_bias takes token ids (whole numbers from 0), got {token!r}")
        number = _is_int(value) or isinstance(value, float)
        if not number or not -100.0 <= value <= 100.0:
            raise SpecError(f"logit_bias of token {token} must be from -100 to 100, got {value!r}")
