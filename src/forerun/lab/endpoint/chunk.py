"""What one event of a streamed answer says, in the dialects that servers speak.

Counts of tokens come from the server alone: `usage` of the last chunk, `usage` of every chunk where it is offered
(vLLM's continuous usage), or llama.cpp's `timings.predicted_n`. How many events there are says nothing: under
speculation one of them holds several tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forerun.lab.endpoint.faults import Fault, shown
from forerun.lab.endpoint.sse import ERROR, Event

_ALIVE = ("ping", "heartbeat", "keepalive", "keep-alive")  # names of events that say nothing
_BROKEN = ("error", "abort")  # ends of an answer that are none
_SAYING = ("message", "detail", "msg")  # where an error says what it is
_PRODUCE = ("content", "reasoning_content", "reasoning", "refusal")  # of a delta: text that the model made
_DETAILS = {  # where a server says how a request's drafts went, and how it calls drafted, accepted and rounds
    "vllm": ("metrics speculative_decoding", "num_draft_tokens", "num_accepted_draft_tokens", "num_spec_steps"),
    "sglang": ("sglext spec_tokens_details", "spec_num_proposed_drafts", "spec_num_correct_drafts", "spec_verify_ct"),
    "llama.cpp": ("timings", "draft_n", "draft_n_accepted", ""),
    "tensorrt-llm": ("choice speculative_decoding", "total_draft_tokens", "total_accepted_draft_tokens", ""),
}


@dataclass(frozen=True, slots=True)
class Usage:
    """The server's own counts of one request.

    `completion` holds rejected prediction tokens and hidden reasoning too, as OpenAI defines and bills it.
    """

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0
    accepted_prediction: int = 0
    rejected_prediction: int = 0

    @property
    def written(self) -> int:
        """Tokens that stand in the answer; a server that counts rejected ones apart has more of them than of all."""
        rejected = self.rejected_prediction
        return self.completion - rejected if rejected <= self.completion else self.completion


@dataclass(frozen=True, slots=True)
class Drafted:
    """Speculation of one request, as the server tells it; `rounds` is None where it does not say."""

    source: str
    drafted: int
    accepted: int
    rounds: int | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event, read."""

    text: str
    produced: bool
    """Whether something that the model made stands in it, reasoning and tool calls included."""
    reasoned: bool
    so_far: int | None
    """Tokens of the answer up to here; None where the server does not say."""
    usage: Usage | None
    finish: str
    drafted: Drafted | None


def read(event: Event) -> Chunk | None:
    """Read an event; None for one that only keeps the connection alive, Fault for what is no chunk of an answer, or an
    error of the server's."""
    data = event.data
    if event.name == ERROR:
        raise broken(_parsed(data))
    if event.name in _ALIVE or data.strip() in ("", "null"):
        return None
    try:
        value = json.loads(data)
    except ValueError:
        raise Fault("invalid JSON", f"an event that is not JSON: {shown(data)!r}") from None
    if not isinstance(value, dict):
        raise Fault("invalid JSON", f"an event that is no JSON object: {shown(data)!r}")
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    if is_error(value) or choice.get("error") or choice.get("finish_reason") in _BROKEN:
        raise broken(value if is_error(value) else choice)
    delta = _object(choice.get("delta"))
    made = [delta[name] for name in _PRODUCE if isinstance(delta.get(name), str) and delta[name]]
    text = choice.get("text") if isinstance(choice.get("text"), str) else delta.get("content")
    usage = _usage(value.get("usage"))
    return Chunk(
        text=text if isinstance(text, str) else "",
        produced=bool(made or delta.get("tool_calls") or text),
        reasoned=bool(delta.get("reasoning_content") or delta.get("reasoning")),
        so_far=_so_far(value, usage),
        usage=usage,
        finish=str(choice.get("finish_reason") or ""),
        drafted=_drafted(value, choice),
    )


def is_error(value: Mapping[str, Any]) -> bool:
    """Whether an object is an error of the server's, in one of the forms that servers have for it. A chunk may have an
    `error` that is empty."""
    if value.get("error") or ERROR in (value.get("object"), value.get("type")):
        return True
    if value.get("choices") or value.get("usage"):
        return False
    return value.get("error") is not None or any(isinstance(value.get(name), str) for name in _SAYING)


def broken(error: object) -> Fault:
    """The fault that an error of the server's is, in its own words."""
    return Fault("server error", f"the server broke off: {shown(_message(error)) or 'it does not say why'}")


def _message(error: object) -> str:
    """What an error says: the text at the end of the names that servers put it under."""
    if not isinstance(error, Mapping):
        return "" if error is None else str(error)
    found = next((error[name] for name in ("error", *_SAYING) if error.get(name)), None)
    if found is None and error.get("finish_reason") in _BROKEN:
        return f"finish_reason is {error['finish_reason']!r}"
    return _message(found) if found is not None else json.dumps(error) if error.keys() - {ERROR} else ""


def _parsed(text: str) -> object:
    """JSON if it is some, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _usage(value: object) -> Usage | None:
    if not isinstance(value, Mapping) or type(value.get("completion_tokens")) is not int:
        return None
    read, written = _object(value.get("prompt_tokens_details")), _object(value.get("completion_tokens_details"))
    return Usage(
        _count(value.get("prompt_tokens")),
        _count(value["completion_tokens"]),
        _count(read.get("cached_tokens")),
        _count(written.get("reasoning_tokens")),
        _count(written.get("accepted_prediction_tokens")),
        _count(written.get("rejected_prediction_tokens")),
    )


def _so_far(value: Mapping[str, Any], usage: Usage | None) -> int | None:
    """The running count; the closing chunk of usage has no choices and comes behind the answer."""
    if not value.get("choices"):
        return None
    if usage is not None:
        return usage.completion
    told = _object(value.get("timings")).get("predicted_n")
    return told if type(told) is int else None


def _drafted(value: Mapping[str, Any], choice: Mapping[str, Any]) -> Drafted | None:
    for source, (path, *names) in _DETAILS.items():
        place: Mapping[str, Any] = {**value, "choice": choice}
        for step in path.split():
            place = _object(place.get(step))
        drafted, accepted, rounds = map(place.get, names)
        if type(drafted) is int and type(accepted) is int:
            return Drafted(source, drafted, accepted, rounds if type(rounds) is int else None)
    return None
