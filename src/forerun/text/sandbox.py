"""A Jinja sandbox that also bounds work and size.

Jinja's own sandbox keeps templates away from Python's insides but lets them loop for ever or build any
string. Here every loop turn and every call costs steps of a budget, and the operators, methods and filters
that make large texts out of small ones are measured first.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_STEPS = 1_000_000  # of one rendering: a loop turn is one step, a call _CALL steps
_CALL = 10
MOST_CHARS = 16_000_000  # of any text made on the way, and of the result
_steps: ContextVar[list[int]] = ContextVar("steps")
_SIZED = ("center", "indent", "wordwrap", "batch", "slice", "format", "replace", "join")


class _Generator(CodeGenerator):
    """Counts loop turns and watches `~`, which the sandbox cannot intercept."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        node.iter = nodes.Call(nodes.EnvironmentAttribute("counted"), [node.iter], [], None, None)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """ImmutableSandboxedEnvironment with a budget; `run` renders a template's text."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.globals["range"] = _range
        self.globals.pop("lipsum", None)
        for name in _SIZED:
            self.filters[name] = _guarded(name, self.filters[name])
        self.compiled = lru_cache(maxsize=64)(self.from_string)

    def run(self, source: str, names: Mapping[str, object]) -> str:
        """Render; TemplateError when a bound is reached, whatever the template raises otherwise."""
        token = _steps.set([MOST_STEPS])
        try:
            template: Template = self.compiled(source)
            parts: list[str] = []
            size = 0
            for part in template.generate(names):
                size += len(part)
                _bounded(size)
                parts.append(part)
            return "".join(parts)
        finally:
            _steps.reset(token)

    def counted(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items, one step each."""
        for item in items:
            _spend(1)
            yield item

    def joined(self, parts: tuple[Any, ...]) -> str:
        """Jinja's `~`."""
        texts = [str(part) for part in parts]
        _bounded(sum(map(len, texts)))
        return "".join(texts)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Every call a template makes."""
        _spend(_CALL)
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox hands out str.format in a wrapper
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str | bytes):
            _foresee(method.__name__, owner, [*args, *kwargs.values()])
        return _checked(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Every `*`, `**`, `+` and `%` a template makes, refused before it grows too large."""
        if operator == "*":
            _bounded(max(_length(left) * _magnitude(right), _length(right) * _magnitude(left)))
        elif operator == "**":
            _bounded(_magnitude(left).bit_length() * _magnitude(right))
        elif operator == "%" and isinstance(left, str) and "*" not in left:
            _bounded(_widest(left))
        elif operator == "%" and isinstance(left, str):
            raise TemplateError("the template formats with a width taken from an argument: not allowed")
        return _checked(super().call_binop(context, operator, left, right))


def _range(*bounds: int) -> range:
    made = range(*bounds)
    if len(made) > MOST_STEPS:
        raise TemplateError(f"the template asks for a range of {len(made)} (allowed: {MOST_STEPS})")
    return made


def _spend(count: int) -> None:
    left = _steps.get()
    left[0] -= count
    if left[0] < 0:
        raise TemplateError(f"the template runs over {MOST_STEPS} steps: it does not seem to end")


def _bounded(size: int) -> None:
    if size > MOST_CHARS:
        raise TemplateError(f"the template makes over {MOST_CHARS} characters: it does not seem to end")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple) else 0


def _magnitude(value: Any) -> int:
    return abs(value) if isinstance(value, int) else 0


def _checked(value: Any) -> Any:
    _bounded(_length(value))
    if isinstance(value, int):
        _bounded(value.bit_length())
    return value


def _widest(form: str) -> int:
    """The largest number written in a format string: an upper bound of any width it asks for."""
    digits = "".join(c if c.isdigit() else " " for c in form).split()
    return max((int(d) if len(d) < 12 else MOST_CHARS + 1 for d in digits), default=0)


def _foresee(method: str, owner: Any, args: list[Any]) -> None:
    """Refuse a call on a text (or the filter of the same name) whose result would be too large."""
    widest = max(map(_magnitude, args), default=0)
    if method in ("translate", "maketrans"):
        raise TemplateError(f"the template calls {method}(): not allowed")
    if method == "replace" and len(args) >= 2:
        _bounded(str(owner).count(str(args[0])) * len(str(args[1])))
    elif method == "join" and args:
        _bounded(_length(owner) * _length(args[0]))
    elif method in ("expandtabs", "indent"):
        _bounded(_length(owner) * widest)
    elif method in ("format", "format_map"):
        _bounded((str(owner).count("{") + str(owner).count("%")) * max(_widest(str(owner)), widest))
    else:
        _bounded(widest)


def _guarded(name: str, function: Any) -> Any:
    """A filter that is measured like the method of the same name; Jinja hands some filters a context first."""
    passes = getattr(function, "jinja_pass_arg", None)

    def bounded(*args: Any, **kwargs: Any) -> Any:
        values = [*args[1 if passes else 0 :], *kwargs.values()]
        if name == "join" and len(values) > 1:
            _foresee(name, str(values[1]), values[:1])
        elif values and name != "join":
            _foresee(name, values[0], values[1:])
        return _checked(function(*args, **kwargs))

    if passes:
        vars(bounded)["jinja_pass_arg"] = passes
    return bounded
