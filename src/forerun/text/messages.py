"""A conversation as its caller gives it, checked and put into the one form that chat templates are made for.

Every fault is refused by name: a template that meets a key, a role or a type it does not know prints nothing, or
Python's way of writing it, and the model answers something that nobody asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from forerun.core.errors import SpecError, unknown

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Roles that are always allowed; a template's own (`model`, `ipython`, …) are allowed with that template."""
KEYS = ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "thinking")

Message = dict[str, object]


def checked(messages: object, roles: frozenset[str]) -> list[Message]:
    """The messages with their content as a text; SpecError naming the message and what is wrong with it.

    `roles` are those that the template names itself. Content stays None in an assistant's message of tool calls
    alone, which is what templates look for.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise SpecError(f"messages must be a list of messages, got {_short(messages)}")
    if not messages:
        raise SpecError("there are no messages: give at least one, such as {'role': 'user', 'content': 'Hi'}")
    return [_message(message, f"message {i}", roles) for i, message in enumerate(messages, start=1)]


def _message(message: object, where: str, roles: frozenset[str]) -> Message:
    if not isinstance(message, Mapping):
        raise SpecError(f"{where} must be a mapping with role and content, got {_short(message)}")
    for key in message:
        if key not in KEYS:
            raise unknown(f"key in {where}:", key, KEYS)
    role = message.get("role")
    if not isinstance(role, str):
        raise SpecError(f"{where} needs a role (allowed: {', '.join(ROLES)}), got {_short(role)}")
    if role not in ROLES and role not in roles:
        raise unknown(f"role in {where}:", role, ROLES)
    told = {key: value for key, value in message.items() if key in ("role", "content") or value is not None}
    for key in ("name", "tool_call_id", "reasoning_content", "reasoning", "thinking"):
        if key in told and not isinstance(told[key], str):
            raise SpecError(f"{key} of {where} must be a text, got {_short(told[key])}")
    calls = told.pop("tool_calls", None)
    if calls:
        told["tool_calls"] = _calls(calls, where)
    if "content" not in told and not calls:
        raise SpecError(f"{where} has no content: give its text, or None for none")
    told["content"] = _text(told.get("content"), where)
    if told["content"] is None and not calls:
        told["content"] = ""
    return told


def _text(content: object, where: str) -> str | None:
    """A text, or the texts of a list of parts one after another."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise SpecError(f"content of {where} must be a text, a list of text parts or None, got {_short(content)}")
    return "".join(_part(part, f"part {i} of {where}") for i, part in enumerate(content, start=1))


def _part(part: object, where: str) -> str:
    if not isinstance(part, Mapping):
        raise SpecError(f"{where} must be a mapping with type and text, got {_short(part)}")
    if part.get("type") != "text":
        raise SpecError(f"{where} has type {_short(part.get('type'))} (allowed: 'text'): models here read text alone")
    for key in part:
        if key not in ("type", "text"):
            raise unknown(f"key in {where}:", key, ("type", "text"))
    text = part.get("text")
    if not isinstance(text, str):
        raise SpecError(f"text of {where} must be a text, got {_short(text)}")
    return text


def _calls(calls: object, where: str) -> list[dict[str, object]]:
    """Tool calls in OpenAI's form; arguments that are JSON text become the mapping that templates expect."""
    if not isinstance(calls, list | tuple):
        raise SpecError(f"tool_calls of {where} must be a list, got {_short(calls)}")
    told = []
    for call in calls:
        if not isinstance(call, Mapping):
            raise SpecError(f"tool_calls of {where} must hold mappings, got {_short(call)}")
        function = call.get("function", call)
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise SpecError(f"a tool call of {where} must hold function with name and arguments, got {_short(call)}")
        whole = {**function, "arguments": _arguments(function.get("arguments"), where)}
        told.append({**call, "function": whole} if "function" in call else whole)
    return told


def _arguments(arguments: object, where: str) -> object:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise SpecError(f"arguments of a tool call of {where} are not JSON: {_short(arguments)}") from None
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise SpecError(f"arguments of a tool call of {where} must be a mapping, got {_short(arguments)}")
    return arguments


def tools_of(tools: object) -> list[object] | None:
    """Definitions of tools as templates read them; none is None."""
    if tools is None:
        return None
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, Mapping) for tool in tools):
        raise SpecError(f"tools must be a list of definitions (mappings with type and function), got {_short(tools)}")
    return list(tools) or None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
