"""A run: resumed, complete or not written."""

import json

import pytest

from forerun.core.errors import LoadError, SpecError
from forerun.lab.machine import provenance
from forerun.lab.run import SCHEMA, Answers, Run, digest, load_result

ANSWERS = Answers("plain decoding", "1", "toy", "nothing", "none")
ASK = {"model": "toy", "prompts": 3}


def finished(run, figures=None, samples=({"ms": 1.0},), answers=ANSWERS, bench=None):
    return run.finish(provenance() if bench is None else bench, answers, figures or {"speed": 2.5}, list(samples))


def test_a_complete_run_is_written_and_read_back(tmp_path):
    out = tmp_path / "results" / "toy.json"
    run = Run("toy", out, ASK)
    assert run.unit("a", lambda: {"ms": 1.0}) == {"ms": 1.0}
    assert run.partial.exists()
    finished(run)
    found = load_result(out)
    assert (found.experiment, found.figures, list(found.samples)) == ("toy", {"speed": 2.5}, [{"ms": 1.0}])
    assert found.answers["data"] == "nothing"
    assert found.bench["ask"] == ASK
    assert [path.name for path in out.parent.iterdir()] == ["toy.json"]
    assert len(digest(out)) == 16


def test_a_run_cut_short_goes_on_where_it_was(tmp_path):
    out, measured = tmp_path / "toy.json", []

    def measure(name):
        measured.append(name)
        return [name]

    first = Run("toy", out, ASK)
    first.unit("a", lambda: measure("a"))
    first.unit("b", lambda: measure("b"))
    with first.partial.open("a") as file:
        file.write('{"key": "c", "val')  # killed while it wrote
    again = Run("toy", out, ASK)
    assert again.resumed == 2
    assert [again.unit(name, lambda: measure(name)) for name in "abc"] == [["a"], ["b"], ["c"]]
    assert measured == ["a", "b", "c"]
    finished(again)
    assert load_result(out).bench["resumed_units"] == 2


def test_another_ask_begins_anew(tmp_path):
    out = tmp_path / "toy.json"
    Run("toy", out, ASK).unit("a", lambda: 1)
    assert Run("toy", out, {**ASK, "prompts": 4}).resumed == 0
    assert Run("other", out, ASK).resumed == 0


@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        ({"samples": ()}, "samples"),
        ({"figures": {"a": {"b": [1.0, float("nan")]}}}, r"figures\.a\.b\.1"),
        ({"figures": {"a": float("inf")}}, "finite"),
        ({"answers": Answers("plain", "", "toy", "x", "y")}, r"answers\.batch"),
        ({"bench": {"command": "x"}}, r"bench\.date"),
    ],
)
def test_an_incomplete_run_writes_nothing(tmp_path, change, lacks):
    out = tmp_path / "toy.json"
    with pytest.raises(SpecError, match=lacks):
        finished(Run("toy", out, ASK), **change)
    assert not out.exists()


def test_without_a_name_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", None, ASK)
    run.unit("a", lambda: 1)
    assert finished(run)["figures"] == {"speed": 2.5}
    assert not list(tmp_path.iterdir())


def test_paths_that_cannot_be_written_are_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.json").mkdir()
    for path, hint in (("x.txt", ".json file"), ("folder.json", "is a folder"), ("file/x.json", "not a folder")):
        with pytest.raises(SpecError, match=hint):
            Run("toy", tmp_path / path, ASK)


def test_measuring_nothing_leaves_nothing_behind(tmp_path):
    run = Run("toy", tmp_path / "toy.json", ASK)
    run.discard()
    assert not list(tmp_path.iterdir())
    run = Run("toy", tmp_path / "toy.json", ASK)
    run.unit("a", lambda: 1)
    run.discard()
    assert run.partial.exists()


WHOLE = {"schema": SCHEMA, "experiment": "toy", "bench": {}, "answers": {}, "figures": {}, "samples": []}


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "cannot be read"),
        ("[1]", "schema None"),
        (
            json.dumps({**WHOLE, "schema": 99, "bench": {"command": "forerun lab toy"}}),
            "measure again: forerun lab toy",
        ),
        (json.dumps({"schema": SCHEMA}), "'experiment'"),
        (json.dumps(WHOLE), "not complete"),
        (json.dumps({**WHOLE, "bench": [], "answers": None}), "not a whole results file"),
    ],
)
def test_files_that_are_no_results_are_refused_in_one_line(tmp_path, text, hint):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(LoadError, match=hint) as caught:
        load_result(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(LoadError, match="no results file"):
        load_result(tmp_path / "y.json")
