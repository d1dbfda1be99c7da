"""How large a thing would be that a chat template asks for, before it is made; TemplateError where it is too large."""

import re
from collections.abc import Mapping
from typing import Any

from jinja2 import TemplateError

MOST_CHARS = 16_000_000  # of any text made on the way, and of the result
MOST_ITEMS = 250_000  # of any list, and of all lists within one that is written down
_MOST_BITS = 1 << 16
_NUMBER = 24  # characters of a value that is no text and no list
WALKS = (
    "batch", "dictsort", "first", "groupby", "items", "join", "last", "list", "map", "max", "min", "reject",
    "rejectattr", "reverse", "select", "selectattr", "slice", "sort", "sum", "unique", "wordcount",
)  # fmt: skip
"""Filters that look at every item; given a text, at every character."""
_WRITES = (
    "capitalize", "center", "e", "escape", "forceescape", "indent", "lower", "replace", "safe", "string", "striptags",
    "title", "trim", "truncate", "upper", "urlencode",
)  # fmt: skip
"""Filters that make a text of what they are given."""
_CODED = {"e": 5, "escape": 5, "forceescape": 5, "urlencode": 12, "upper": 3, "lower": 3, "title": 3, "capitalize": 3}
"""Into how many characters these may turn one."""
_SPLITS = ("split", "rsplit", "splitlines")


def bounded(size: int) -> None:
    """Refuse a text of so many characters."""
    if size > MOST_CHARS:
        raise TemplateError(f"the template makes over {MOST_CHARS} characters: it does not seem to end")


def few(count: int) -> None:
    """Refuse a list of so many items."""
    if count > MOST_ITEMS:
        raise TemplateError(f"the template makes a list of {count} items (allowed: {MOST_ITEMS})")


def short(bits: int) -> None:
    """Refuse a whole number of so many bits."""
    if bits > _MOST_BITS:
        raise TemplateError(f"the template makes a number of {bits} bits (allowed: {_MOST_BITS})")


def text_size(value: Any, item: int = 2, indent: int = 0) -> int:
    """Characters that `value` has at least when it is written down; `item` and `indent` are those around each item."""
    if isinstance(value, str | bytes):
        return len(value)
    size, items, open_ = 0, 0, [(value, 1)]
    while open_:
        value, depth = open_.pop()
        if isinstance(value, Mapping):
            value = [part for pair in value.items() for part in pair]
        if isinstance(value, list | tuple | set | frozenset):
            items += len(value)
            few(items)
            size += len(value) * (item + indent * depth)
            open_ += [(part, depth + 1) for part in value]
        else:
            size += len(value) if isinstance(value, str | bytes) else _NUMBER
        bounded(size)
    return size


def foresee_operator(operator: str, left: Any, right: Any) -> None:
    """Refuse what `*`, `**`, `+` and `%` would make too large."""
    if operator == "*":
        for value, times in ((left, right), (right, left)):
            (bounded if isinstance(value, str | bytes) else few)(_length(value) * _magnitude(times))
        short(_bits(left) + _bits(right))
    elif operator == "**":
        short(_bits(left) * _magnitude(right))
    elif operator == "+":
        (bounded if isinstance(left, str | bytes) else few)(_length(left) + _length(right))
    elif operator == "%" and isinstance(left, str | bytes):
        _formatted(str(left), list(right) if isinstance(right, tuple) else [right])


def foresee(method: str, owner: Any, args: list[Any]) -> None:
    """Refuse a call of a method on a text or a number whose result would be too large."""
    text = owner if isinstance(owner, str | bytes) else ""
    if method in ("translate", "maketrans"):
        raise TemplateError(f"the template calls {method}(): not allowed")
    if method in ("format", "format_map"):
        _formatted(str(owner), args)
    elif method == "replace" and len(args) >= 2:
        _replaced(owner, args)
    elif method == "join" and args:
        _joined(args[0], text)
    elif method == "expandtabs":
        bounded(_length(text) * max(8, *map(_magnitude, args)) if args else 8 * _length(text))
    elif method in _SPLITS:
        separators = [arg for arg in args if isinstance(arg, str | bytes) and arg]
        # A separator of another type than the text raises here what the call itself would.
        few(text.count(separators[0]) if separators else _length(text) // (1 if method == "splitlines" else 2))  # type: ignore[arg-type]
    else:
        bounded(_length(text) + max(map(_magnitude, args), default=0))


def foresee_filter(name: str, value: Any, args: list[Any]) -> None:
    """Refuse a filter whose result would be too large, or that walks through too much."""
    widest = max(map(_magnitude, args), default=0)
    if name in WALKS:
        few(len(value) if hasattr(value, "__len__") else 0)
    if name in _WRITES:
        bounded(text_size(value) * _CODED.get(name, 1))
    if name in ("batch", "slice"):
        few(widest)
    elif name == "join":
        _joined(value, args[0] if args else "")
    elif name == "replace" and len(args) >= 2:
        _replaced(str(value), args)
    elif name == "indent":
        written = max([widest, *(len(arg) for arg in args if isinstance(arg, str))], default=0)
        bounded((str(value).count("\n") + 1) * max(written, 4))
    elif name == "format":
        _formatted(str(value), args)
    elif name == "sum" and any(isinstance(arg, list | tuple) for arg in args):
        raise TemplateError("the template adds up lists: not allowed")
    elif name == "round":
        short(widest * 4)
    elif name == "tojson":
        bounded(text_size(value, 4, max(map(_magnitude, args), default=0)) * 2)
    else:
        bounded(widest)


def _formatted(form: str, args: list[Any]) -> None:
    """Refuse what formatting would make: every field as wide as the widest, or as its largest argument."""
    if re.search(r"%[^%a-zA-Z]*\*|\{[^{}]*\{", form):
        raise TemplateError("the template formats with a width taken from an argument: not allowed")
    grows = 10 if re.search(r"![ra]|%[^%\w]*[ra]", form) else 1
    largest = max((grows * text_size(arg) for arg in args), default=0)
    bounded(len(form) + (form.count("{") + form.count("%")) * max(_widest(form), largest))


def _replaced(owner: Any, args: list[Any]) -> None:
    old, new = args[0], args[1]
    if isinstance(old, str | bytes):
        bounded(len(owner) + owner.count(old) * text_size(new))


def _joined(items: Any, separator: Any) -> None:
    count = len(items) if hasattr(items, "__len__") else 0
    few(count)
    bounded(count * text_size(separator) + sum(map(text_size, items if count else ())))


def _widest(form: str) -> int:
    """The largest number written in a format string: an upper bound of any width it asks for."""
    return max((int(digits) if len(digits) < 12 else MOST_CHARS + 1 for digits in re.findall(r"\d+", form)), default=0)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple) else 0


def _magnitude(value: Any) -> int:
    return abs(value) if isinstance(value, int) else 0


def _bits(value: Any) -> int:
    return _magnitude(value).bit_length()
