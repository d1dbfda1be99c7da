"""The body of a request, in the richest form that a server accepts: asked once, then kept.

Counts for every event, and what drafts came to, have to be asked for, each server in its own way; a server that does
not know a field answers 400 or 422, and the next plainer form is tried. A form that is accepted promises nothing:
whether counts came is seen in the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from forerun.core.errors import LoadError, SpecError, unknown
from forerun.lab.endpoint.client import Server
from forerun.lab.endpoint.faults import Fault
from forerun.lab.endpoint.reply import Reply

Api = Literal["chat", "completions"]
APIS = ("chat", "completions")
PATHS = {"chat": "/chat/completions", "completions": "/completions"}
_OWNERS = {  # what /v1/models says of the server -> fields that make it tell more
    "llamacpp": {"timings_per_token": True},
    "sglang": {"return_spec_tokens_details": True},
}
_USAGE: dict[str, Mapping[str, object]] = {
    "continuous": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "final": {"stream_options": {"include_usage": True}},
    "none": {},
}


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked of every model alike."""

    api: Api = "chat"
    tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.api not in APIS:
            raise unknown("api", self.api, APIS)
        if self.tokens < 1:
            raise SpecError(f"answers need a length: tokens must be from 1 up, got {self.tokens}")


@dataclass(frozen=True, slots=True)
class Form:
    """How one server wants to be asked."""

    usage: Literal["continuous", "final", "none"] = "continuous"
    limit: str = "max_tokens"
    extra: Mapping[str, object] = field(default_factory=dict)

    def plainer(self, fault: Fault) -> Form | None:
        """The next form to try after a refusal; None if there is none, or the refusal is about something else."""
        if fault.status not in (400, 422):
            return None
        if self.limit == "max_tokens" and "max_completion_tokens" in str(fault):
            return replace(self, limit="max_completion_tokens")
        if self.extra:
            return replace(self, extra={})
        if self.usage == "none":
            return None
        return replace(self, usage="final" if self.usage == "continuous" else "none")


Messages = Sequence[Mapping[str, str]]


def body(form: Form, ask: Ask, model: str, messages: Messages, prediction: str | None = None) -> dict[str, object]:
    """The JSON of a request; for `completions` the conversation is one text."""
    asked: dict[str, object] = {"model": model, "stream": True, form.limit: ask.tokens}
    asked |= {"temperature": ask.temperature, "seed": ask.seed}
    if ask.api == "chat":
        asked["messages"] = list(messages)
    else:
        asked["prompt"] = "\n\n".join(message["content"] for message in messages)
    if ask.top_p != 1.0:
        asked["top_p"] = ask.top_p
    if ask.ignore_eos:
        asked["ignore_eos"] = True
    if prediction is not None:
        asked["prediction"] = {"type": "content", "content": prediction}
    return {**asked, **_USAGE[form.usage], **form.extra}


async def agree(server: Server, ask: Ask, model: str, owner: str) -> tuple[Form, Reply]:
    """The richest form that the server accepts for `model`, and the answer that showed it.

    `owner` is what the server calls itself. LoadError if it accepts none or does not answer at all.
    """
    form: Form | None = Form(extra=_OWNERS.get(owner, {}))
    hello = [{"role": "user", "content": "Count from one to ten."}]
    while True:
        assert form is not None
        try:
            reply, _ = await server.stream(PATHS[ask.api], body(form, ask, model, hello))
            return form, reply
        except Fault as fault:
            form = form.plainer(fault)
            if form is None:
                raise LoadError(f"model {model!r} cannot be asked: {fault}") from None
