"""Messages to prompt text through the model's own Jinja template, in a sandbox with a budget.

Templates come with models and are not trusted: attributes are those Jinja's sandbox allows, and loops,
calls and the size of every text are bounded, so that a template can fail but not hang or fill memory.
Variables and functions are those transformers gives: bos_token and its kin where they exist,
raise_exception, strftime_now, tojson, loop controls, {% generation %}.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NoReturn

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from forerun.core.errors import SpecError
from forerun.text.sandbox import Sandbox
from forerun.text.tokenizer import Tokenizer


def render(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, object]],
    add_generation_prompt: bool = True,
    variables: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """The prompt for these messages; encode it with bos=False.

    `variables` are more names for the template (tools, enable_thinking, …). SpecError without a template, or
    with the template's own message when it refuses or fails.
    """
    source = tokenizer.chat_template
    if source is None:
        raise SpecError("this model has no chat template; send a raw prompt (completions, --raw) instead")
    names = {
        **tokenizer.specials,
        "messages": messages,
        "add_generation_prompt": add_generation_prompt,
        "tools": None,
        "documents": None,
        **variables,
    }
    try:
        return _environment().run(source, names)
    except TemplateError as error:
        raise SpecError(f"the chat template refused these messages: {error.message or error}") from error
    except SpecError:
        raise
    except Exception as error:  # templates can raise anything Python can, RecursionError and TypeError included
        reason = str(error) or type(error).__name__
        raise SpecError(f"the chat template failed on these messages: {reason}") from error


@lru_cache(maxsize=1)
def _environment() -> Sandbox:
    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
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
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)
