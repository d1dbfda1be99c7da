"""Values come back from JSON as they were: tuples, and dataclasses in them."""

import json
from dataclasses import asdict, dataclass

import pytest

from forerun.lab.restored import restored


@dataclass(frozen=True)
class Inner:
    pairs: tuple[tuple[float, int | None], ...]
    two: tuple[int, str] = (0, "")


@dataclass(frozen=True)
class Outer:
    inner: Inner | None
    all: tuple[Inner, ...]
    facts: dict[str, list[int]]
    name: str = "as it was"


INNER = Inner(((0.5, None), (1.0, 2)), (3, "b"))


@pytest.mark.parametrize("value", [Outer(INNER, (INNER, Inner(())), {"a": [1, 2]}), Outer(None, (), {}, "new")])
def test_what_was_written_is_read(value):
    assert restored(Outer, json.loads(json.dumps(asdict(value)))) == value


def test_what_is_missing_has_its_default_and_what_is_strange_is_refused():
    assert restored(Outer, {"inner": None, "all": [], "facts": {}}).name == "as it was"
    with pytest.raises(TypeError, match="other"):
        restored(Outer, {"inner": None, "all": [], "facts": {}, "other": 1})
    with pytest.raises(ValueError, match=r"shorter|longer"):
        restored(Inner, {"pairs": [], "two": [1]})
