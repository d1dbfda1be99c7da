from dataclasses import dataclass
from typing import Literal

import pytest

from forerun.core.errors import SpecError
from forerun.core.options import Spec, build, documented
from forerun.core.params import SamplingParams


@dataclass(frozen=True)
class Options:
    depth: int = 4
    share: float = 0.5
    on: bool = True
    law: Literal["chosen", "sampled"] = "chosen"
    path: str | None = None
    limit: int | None = None


def test_texts_are_read_as_the_field_s_type():
    built = build(Options, {"depth": "7", "share": "0.25", "on": "false", "law": "sampled", "path": "a/b"}, "x")
    assert built == Options(7, 0.25, False, "sampled", "a/b")
    assert build(Options, {"limit": "none"}, "x").limit is None
    assert build(Options, {"limit": "3"}, "x").limit == 3


@pytest.mark.parametrize(
    "values",
    [{"depth": 1.9}, {"depth": True}, {"depth": "1.9"}, {"on": "maybe"}, {"on": 1}, {"law": "x"}, {"share": "much"}],
)
def test_what_is_not_of_the_type_is_refused(values):
    """Failure case 138."""
    with pytest.raises(SpecError, match=next(iter(values))):
        build(Options, values, "thing")


def test_an_unknown_key_suggests_the_near_name():
    with pytest.raises(SpecError, match="did you mean 'depth'"):
        build(Options, {"dept": 3}, "thing")


def test_spec_reads_the_command_line_form():
    assert Spec.parse("ngram:depth=8,min=2") == Spec("ngram", {"depth": "8", "min": "2"})
    assert Spec.parse("none") == Spec("none", {})


@pytest.mark.parametrize("text", ["", ":depth=1", "ngram:depth", "ngram:=3", "ngram:depth=1,depth=2"])
def test_a_spec_that_cannot_be_meant_is_refused(text):
    with pytest.raises(SpecError):
        Spec.parse(text)


def test_spaces_around_a_key_make_no_second_one():
    assert Spec.parse(" ngram : min = 1 ").values == {"min": "1"}
    with pytest.raises(SpecError, match="twice"):
        Spec.parse("ngram:min=1, min=2")


def test_options_are_known_where_the_source_is_gone(monkeypatch):
    """A package is changed under a training of an hour: what options mean is then unknown, not what they are."""
    import inspect

    from forerun.core.options import _field_texts
    from forerun.core.plan import Plan

    assert documented(Plan)["depth"][1]
    _field_texts.cache_clear()

    def gone(cls):
        raise OSError("could not find class definition")

    monkeypatch.setattr(inspect, "getsource", gone)
    found = documented(Plan)
    _field_texts.cache_clear()
    assert found["nodes"] == (256, "")
    assert set(found) == {"depth", "nodes", "width", "confidence", "signals"}


def test_threads_read_descriptions_at_once():
    """Python 3.11 raises SystemError where threads parse sources at the same time."""
    from concurrent.futures import ThreadPoolExecutor

    from forerun.core.options import _field_texts

    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            _field_texts.cache_clear()
            found = list(pool.map(lambda _: documented(SamplingParams), range(8)))
            assert all(one == found[0] for one in found)
