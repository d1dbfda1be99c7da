"""Values read back from the JSON of a kept unit: dataclasses, and the tuples in them, as their annotations say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def restored(cls: type[T], value: Mapping[str, Any]) -> T:
    """A dataclass from what `asdict` and JSON made of it; TypeError for fields that it has not."""
    hints = get_type_hints(cls)
    return cls(**{name: _as(hints.get(name), held) for name, held in value.items()})


def _as(kind: Any, held: Any) -> Any:
    if get_origin(kind) is UnionType:
        (kind,) = (option for option in get_args(kind) if option is not NoneType)
    if held is None or get_origin(kind) not in (None, tuple):
        return held
    if get_origin(kind) is tuple:
        first, *rest = get_args(kind)
        kinds = [first] * len(held) if rest == [...] else [first, *rest]
        return tuple(_as(inner, one) for inner, one in zip(kinds, held, strict=True))
    return restored(kind, held) if isinstance(kind, type) and is_dataclass(kind) else held
