"""Options: frozen dataclasses built from Python values, TOML or the command line by one function.

Unknown keys are refused with the nearest name; a value must be what the field says, and a text (as the command line
gives) is read as that type. Whole numbers stay whole: 1.9 is not 1, and true is not 1.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from threading import Lock
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from forerun.core.errors import SpecError, unknown

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spec:
    """A part named on the command line: `name[:key=value,…]`."""

    name: str
    values: Mapping[str, object]

    @staticmethod
    def parse(text: str, part: str = "drafter") -> Spec:
        """Read `ngram:depth=8,min=2`; raises SpecError for a form that cannot be meant."""
        name, _, rest = text.partition(":")
        if not name:
            raise SpecError(f"a {part} is named as name[:key=value,…], got {text!r}")
        values: dict[str, object] = {}
        for pair in filter(None, rest.split(",")):
            key, equals, value = (part.strip() for part in pair.partition("="))
            if not equals or not key:
                raise SpecError(f"{name}: options are key=value, got {pair!r}")
            if key in values:
                raise SpecError(f"{name}: {key} is given twice")
            values[key] = value
        return Spec(name.strip(), values)


def build(cls: type[T], values: Mapping[str, object], what: str) -> T:
    """An instance of the dataclass `cls` from `values`; `what` names it in errors."""
    known = {field.name: field for field in fields(cast(Any, cls))}
    hints = get_type_hints(cls)
    for key in values:
        if key not in known:
            raise unknown(f"{what} option", key, known) if known else SpecError(f"{what} takes no options, got {key!r}")
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise SpecError(f"{what} needs the option {name!r}")
    return cls(**{key: coerce(value, hints[key], f"{what} option {key!r}") for key, value in values.items()})


def coerce(value: object, kind: Any, what: str) -> Any:
    """`value` as `kind` (bool, int, float, str, Literal, or a union with None); SpecError if it is not one."""
    origin = get_origin(kind)
    if origin is Literal:
        if value in get_args(kind):
            return value
        raise unknown(what, value, [str(choice) for choice in get_args(kind)])
    if origin in (Union, UnionType):
        kinds = [choice for choice in get_args(kind) if choice is not type(None)]
        if value is None or value == "none":
            return None
        return coerce(value, kinds[0], what)
    if isinstance(value, str) and kind in (bool, int, float):
        return _read(value, kind, what)
    fine = isinstance(value, (int, float) if kind is float else kind) and (kind is bool or not isinstance(value, bool))
    if not fine:
        raise SpecError(f"{what} takes {_called(kind)}, got {value!r}")
    return float(value) if kind is float and isinstance(value, int) else value


def _read(text: str, kind: Any, what: str) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
            raise SpecError(f"{what} takes true or false, got {text!r}")
        return text.lower() in ("true", "1", "yes", "on")
    try:
        return kind(text)
    except ValueError:
        raise SpecError(f"{what} takes {_called(kind)}, got {text!r}") from None


def _called(kind: Any) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(kind, str(kind))


def documented(cls: type[Any]) -> dict[str, tuple[object, str]]:
    """Fields of a dataclass, inherited ones too, with their defaults and the docstrings under them in the source.

    Texts are empty where the source cannot be read, as where a package was changed under a running process.
    """
    texts: dict[str, str] = {}
    for owner in reversed([base for base in cls.__mro__ if is_dataclass(base)]):
        texts |= _field_texts(owner)
    return {
        field.name: ("" if field.default is MISSING else field.default, texts.get(field.name, ""))
        for field in fields(cls)
    }


_PARSES = Lock()
"""Python 3.11 raises SystemError where threads parse sources at once."""


@cache
def _field_texts(cls: type[Any]) -> dict[str, str]:
    texts: dict[str, str] = {}
    try:
        with _PARSES:
            tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return texts
    for statement, after in itertools.pairwise(tree.body if isinstance(tree, ast.ClassDef) else []):
        said = after.value if isinstance(after, ast.Expr) else None
        if isinstance(statement, ast.AnnAssign) and isinstance(said, ast.Constant):
            texts[ast.unparse(statement.target)] = inspect.cleandoc(str(said.value))
    return texts
