"""A Jinja sandbox that also bounds work and memory.

Jinja's own sandbox keeps templates away from Python's insides but lets them loop for ever or build any
text. Here every loop turn and every call costs steps of a budget, everything made costs bytes of another, and what
makes large things out of small ones (operators, methods, filters, writing a list down) is measured before it is done.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from forerun.text import sizes
from forerun.text.sizes import bounded, few, text_size

MOST_STEPS = 1_000_000  # of one rendering: a loop turn is one step, a call or a filter _CALL steps
MOST_BYTES = 128 << 20  # of everything made in one rendering
_CALL = 10
_ITEM = 56  # bytes of a list's item, beside its place in the list
_NEEDLESS = ("filesizeformat", "pprint", "random", "urlize", "wordwrap", "xmlattr")  # filters no prompt is made with


@dataclass(slots=True)
class _Budget:
    """What is left of a rendering."""

    steps: int = MOST_STEPS
    bytes: int = MOST_BYTES


_budget: ContextVar[_Budget] = ContextVar("budget")


class _Generator(CodeGenerator):
    """Counts loop turns and watches `~` and slices, which the sandbox cannot intercept."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        node.iter = nodes.Call(nodes.EnvironmentAttribute("counted"), [node.iter], [], None, None)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self._call("joined", node.nodes, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if not isinstance(node.arg, nodes.Slice):
            return super().visit_Getitem(node, frame)
        ends = (node.arg.start, node.arg.stop, node.arg.step)
        self._call("sliced", [node.node, *(end or nodes.Const(None) for end in ends)], frame)

    def _call(self, method: str, parts: Iterable[nodes.Node], frame: Frame) -> None:
        self.write(f"environment.{method}((")
        for part in parts:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """ImmutableSandboxedEnvironment with a budget; `run` renders a template's text."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=_written, **options)
        self.globals["range"] = _range
        self.globals.pop("lipsum", None)
        for name in _NEEDLESS:
            self.filters.pop(name, None)
        for name, function in self.filters.items():
            self.filters[name] = guarded(name, function)
        self.compiled = lru_cache(maxsize=64)(self.from_string)

    @contextmanager
    def budget(self) -> Iterator[None]:
        """The block in which a template is read or rendered: constants are worked out while it is compiled."""
        token = _budget.set(_Budget())
        try:
            yield
        finally:
            _budget.reset(token)

    def run(self, source: str, names: Mapping[str, object]) -> str:
        """Render; TemplateError when a bound is reached, whatever the template raises otherwise."""
        with self.budget():
            template: Template = self.compiled(source)
            parts: list[str] = []
            size = 0
            for part in template.generate(names):
                size += len(part)
                bounded(size)
                parts.append(part)
            return "".join(parts)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """The text of a block or a macro."""
        texts = list(parts)
        bounded(sum(map(len, texts)))
        return str(_made("".join(texts)))

    def counted(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items, one step each."""
        for item in items:
            _spend(1)
            yield item

    def joined(self, parts: tuple[Any, ...]) -> str:
        """Jinja's `~`."""
        bounded(sum(map(text_size, parts)))
        return str(_made("".join(str(_written(part)) for part in parts)))

    def sliced(self, parts: tuple[Any, ...]) -> Any:
        """`value[start:stop:step]`."""
        value, *ends = parts
        return _made(value[slice(*ends)])

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Every call a template makes."""
        _spend(_CALL)
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox hands out str.format in a wrapper
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str | bytes | int | float):
            args = tuple(_listed(arg) for arg in args)
            sizes.foresee(method.__name__, owner, [*args, *kwargs.values()])
        return _made(super().call(__context, __obj, *args, **kwargs), (owner, *args))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Every `*`, `**`, `+` and `%` a template makes, refused before it grows; None beside a text is nothing."""
        if operator == "+" and (isinstance(left, str) or isinstance(right, str)):
            left, right = _written(left), _written(right)
        sizes.foresee_operator(operator, left, right)
        return _made(super().call_binop(context, operator, left, right), (left, right))


def _range(*bounds: int) -> range:
    made = range(*bounds)
    few(len(made))
    return made


def _spend(count: int) -> None:
    left = _budget.get()
    left.steps -= count
    if left.steps < 0:
        raise TemplateError(f"the template runs over {MOST_STEPS} steps: it does not seem to end")


def _made(value: Any, given: tuple[Any, ...] = ()) -> Any:
    """Something new, booked with its size; what was given before costs nothing again."""
    if isinstance(value, str | bytes):
        bounded(len(value))
    elif isinstance(value, list | tuple | dict | set | frozenset):
        few(len(value))
    elif isinstance(value, int):
        sizes.short(value.bit_length())
    else:
        return value
    if not any(value is one for one in given):
        left = _budget.get()
        left.bytes -= sys.getsizeof(value) + (_ITEM * len(value) if isinstance(value, list | tuple | dict) else 0)
        if left.bytes < 0:
            raise TemplateError(f"the template makes over {MOST_BYTES >> 20} MB: it does not seem to end")
    return value


def _written(value: Any) -> Any:
    """What is about to stand in the prompt: None is nothing, and a long list is refused before it is a text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        bounded(text_size(value))
    return value


def _listed(value: Any) -> Any:
    """A list for an iterator, so that it can be measured and then used."""
    if not isinstance(value, Iterator):
        return value
    items = list(islice(value, sizes.MOST_ITEMS + 1))
    few(len(items))
    return items


def guarded(name: str, function: Callable[..., Any]) -> Any:
    """A filter that is measured before it runs; Jinja hands some filters a context first."""
    passes = getattr(function, "jinja_pass_arg", None)
    skip = 1 if passes else 0

    def measured(*args: Any, **kwargs: Any) -> Any:
        _spend(_CALL)
        head, values = args[:skip], list(args[skip:])
        if name in sizes.WALKS and values:
            values[0] = _listed(values[0])
        if values:
            sizes.foresee_filter(name, values[0], [*values[1:], *kwargs.values()])
        return _made(function(*head, *values, **kwargs), tuple(values))

    if passes:
        vars(measured)["jinja_pass_arg"] = passes
    return measured
