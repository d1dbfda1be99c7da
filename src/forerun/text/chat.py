"""Messages to prompt text through the model's own Jinja template, in a sandbox with a budget.

Templates come with models and are not trusted: attributes are those Jinja's sandbox allows, and loops,
calls and the size of everything made are bounded, so that a template can fail but not hang or fill memory.
Variables and functions are those transformers gives: bos_token and its kin where they exist,
raise_exception, strftime_now, tojson, loop controls, {% generation %}.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NoReturn

from jinja2 import Environment, TemplateError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from forerun.core.errors import SpecError, unknown
from forerun.text.marks import Change, changed, own, same
from forerun.text.messages import Message, checked, tools_of
from forerun.text.sandbox import Sandbox, guarded
from forerun.text.tokenizer import Tokenizer

NOTHING: Mapping[str, object] = MappingProxyType({})
_END = "\ufdd0"  # a noncharacter: the end of a message that is to be continued
_GIVEN = ("messages", "add_generation_prompt", "bos_token", "eos_token", "unk_token", "pad_token")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a template's source says of itself."""

    variables: frozenset[str]
    """Names that it is given from outside."""
    sought: frozenset[str]
    """Texts that it writes, compares with or looks for."""
    roles: frozenset[str]
    """Texts that it compares something with, roles among them."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages and all else that a template is given, checked."""

    tokenizer: Tokenizer
    messages: Sequence[Message]
    variables: Mapping[str, object]
    continued: bool = False
    """The last message is not whole: the text ends where its content does."""

    def plain(self) -> str:
        """The prompt's text, control tokens and messages alike."""
        return self._write(same, same)

    def ids(self, *, parse_special: bool = False) -> list[int]:
        """The prompt's token ids; text of the messages becomes control tokens only with `parse_special`."""
        tokenizer = self.tokenizer
        if parse_special:
            return tokenizer.encode(self.plain(), bos=False)
        sought = _reading(_source(tokenizer)).sought
        text, mark = own(self._write, tokenizer.added, tokenizer.controls, sought)
        return tokenizer.encode(text, bos=False, mark=mark)

    def _write(self, text: Change, key: Change) -> str:
        """The template's text, with changes to what it is given; roles, which were checked, stay."""
        given = changed(dict(self.variables), text, key)
        told = [{k: v if k == "role" else changed(v, text, key) for k, v in m.items()} for m in self.messages]
        if not self.continued:
            return _run(self.tokenizer, {**given, "messages": told})
        told[-1]["content"] = f"{told[-1]['content']}{_END}"
        kept, found, _ = _run(self.tokenizer, {**given, "messages": told}).rpartition(_END)
        if not found:
            raise SpecError("the chat template does not show the last message as it is, so it cannot be continued")
        return kept


def conversation(
    tokenizer: Tokenizer,
    messages: object,
    *,
    tools: object = None,
    documents: object = None,
    continue_final_message: bool | None = None,
    add_generation_prompt: bool | None = None,
    variables: Mapping[str, object] = NOTHING,
) -> Conversation:
    """All that a template is given, checked against what it reads; SpecError for what it would leave out.

    The last message is continued if it is the assistant's, or as `continue_final_message` says.
    """
    reading = _reading(_source(tokenizer))
    told = checked(messages, reading.roles)
    last = told[-1]
    if any("tool_calls" in message for message in told) and "tool_calls" not in _source(tokenizer):
        raise SpecError("this model's chat template reads no tool_calls: tell them in the content")
    continued = last["role"] == "assistant" if continue_final_message is None else continue_final_message
    if continued and "tool_calls" in last:
        raise SpecError("the last message calls tools, so it cannot be continued: add the tools' answers")
    if continued and add_generation_prompt:
        raise SpecError("a message that is continued opens no new turn: leave out add_generation_prompt")
    asked = {"tools": tools_of(tools), "documents": documents or None}
    for name, value in asked.items():
        if value is not None and name not in reading.variables:
            raise SpecError(f"this model's chat template reads no {name}: leave them out, or put them into a message")
    for name in variables:
        if name in (*_GIVEN, *asked) or name not in reading.variables:
            free = reading.variables.difference(_GIVEN, asked, _environment().globals)
            raise unknown("variable of this chat template", name, free)
    opens = not continued if add_generation_prompt is None else add_generation_prompt
    return Conversation(tokenizer, told, {**asked, "add_generation_prompt": opens, **variables}, continued)


def render(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, object]],
    add_generation_prompt: bool = True,
    variables: Mapping[str, object] = NOTHING,
) -> str:
    """The prompt's text for these messages, whole; SpecError without a template, or with the template's own message
    when it refuses or fails."""
    told = conversation(
        tokenizer,
        messages,
        continue_final_message=False,
        add_generation_prompt=add_generation_prompt,
        variables=variables,
    )
    return told.plain()


def _source(tokenizer: Tokenizer) -> str:
    if tokenizer.chat_template is None:
        raise SpecError("this model has no chat template; send a raw prompt (completions, --raw) instead")
    return tokenizer.chat_template


def _run(tokenizer: Tokenizer, given: Mapping[str, object]) -> str:
    try:
        return _environment().run(_source(tokenizer), {**tokenizer.specials, **given})
    except TemplateError as error:
        raise SpecError(f"the chat template refused these messages: {error.message or error}") from error
    except SpecError:
        raise
    except Exception as error:  # templates can raise anything Python can, RecursionError and TypeError included
        reason = str(error) or type(error).__name__
        raise SpecError(f"the chat template failed on these messages: {reason}") from error


@lru_cache(maxsize=64)
def _reading(source: str) -> Reading:
    try:
        with _environment().budget():
            tree = _environment().parse(source)
            sought = _texts([tree])
            roles = _texts(tree.find_all(nodes.Operand))
            variables = frozenset(meta.find_undeclared_variables(tree))  # the last, for it works out constants
            return Reading(variables, sought, roles)
    except TemplateError as error:
        raise SpecError(f"the chat template cannot be read: {error.message or error}") from error
    except Exception as error:
        raise SpecError(f"the chat template cannot be read: {str(error) or type(error).__name__}") from error


def _texts(found: Iterable[nodes.Node]) -> frozenset[str]:
    """Every text written in these parts of a template."""
    return frozenset(c.value for node in found for c in node.find_all(nodes.Const) if isinstance(c.value, str))


@lru_cache(maxsize=1)
def _environment() -> Sandbox:
    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = guarded("tojson", _tojson)
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


class _Generation(Extension):
    """{% generation %}…{% endgeneration %} marks answers for training; for a prompt it is its contents."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def _raise(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    if indent is not None and not 0 <= indent <= 64:
        raise TemplateError(f"tojson indent is {indent} (allowed: 0 to 64)")
    if len(repr(options)) > 80:
        raise TemplateError("tojson takes separators of a few characters and sort_keys")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)
