"""A run: resumed, complete or not written."""

import json
import os

import pytest

from forerun.core.errors import LoadError, SpecError
from forerun.lab import machine
from forerun.lab.machine import provenance
from forerun.lab.run import SCHEMA, Answers, Run, digest, facts, load_result, mark
from forerun.workloads.workload import Prompt, Workload

ANSWERS = Answers(relative_to="plain decoding", batch="1", stack="toy", data="nothing", shape="none")
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


def test_a_run_of_another_ask_is_moved_aside_and_what_differs_is_said(tmp_path):
    out = tmp_path / "toy.json"
    old = Run("toy", out, {**ASK, "commit": "a"})
    assert old.notices == []
    old.unit("a", lambda: 1)
    left = old.partial.read_text()
    new = Run("toy", out, {"model": "toy", "commit": "b", "more": None})
    (said,) = new.notices
    assert all(name in said for name in ("prompts", "commit", "more", new.aside.name))
    assert "model" not in said
    assert new.aside.name == "toy.json.partial.old"
    assert new.aside.read_text() == left
    new.discard()  # nothing was measured: the old one is as it was
    assert (old.partial.read_text(), new.aside.exists()) == (left, False)
    assert Run("toy", out, {**ASK, "commit": "a"}).resumed == 1
    newer = Run("toy", out, {**ASK, "commit": "c"})
    newer.unit("a", lambda: 2)
    left = newer.partial.read_text()
    newest = Run("toy", out, {**ASK, "commit": "d"})
    assert newest.aside.read_text() == left, "it replaces an older one"
    finished(newest)
    assert newest.aside.exists()


def test_a_damaged_head_is_kept_aside_too_and_an_empty_run_is_not(tmp_path):
    out = tmp_path / "toy.json"
    Run("toy", out, ASK).partial.write_text('{"schema": 1, "exp\n{"key": "a", "value": 1}\n')
    run = Run("toy", out, ASK)
    assert "form" in run.notices[0]
    assert run.aside.exists()
    other = Run("toy", tmp_path / "other.json", ASK)  # a head, and no unit
    assert Run("toy", other.out, {**ASK, "prompts": 9}).notices == []
    assert not other.aside.exists()


def test_a_run_that_is_never_gone_on_with_keeps_nothing_and_touches_nothing(tmp_path):
    out = tmp_path / "toy.json"
    Run("toy", out, ASK).unit("a", lambda: 1)
    run = Run("toy", out, {**ASK, "log_steps": True}, resume=False)
    assert (run.resumed, run.keeps, run.notices) == (0, False, [])
    run.unit("a", lambda: 2)
    finished(run)
    assert Run("toy", out, ASK).resumed == 1


def test_the_bench_tells_of_the_beginning_not_of_the_end(tmp_path, monkeypatch):
    run = Run("toy", tmp_path / "toy.json", ASK)
    later = {"date": "2999-01-01T00:00:00Z", "commit": "f" * 40, "dirty": "later", "load_average": [99.0, 99.0, 99.0]}
    monkeypatch.setattr(machine, "moment", lambda: later)
    monkeypatch.setattr(machine, "now", lambda: later["date"])
    bench = finished(run, bench={**provenance(), **later})["bench"]
    assert all(bench[name] != later[name] for name in later)
    assert {name: bench[name] for name in run.opened} == run.opened
    assert bench["ended"] == later["date"]


def test_a_system_that_tells_no_load_and_a_package_of_no_commit_are_whole(tmp_path):
    opened = {"date": "2026-01-02T03:04:05Z", "commit": "", "dirty": False, "load_average": None}
    run = Run("toy", tmp_path / "toy.json", ASK, opened=opened)
    finished(run)
    assert load_result(run.out).bench["load_average"] is None


def test_an_ask_holds_what_options_do_not_tell(tmp_path):
    opened = {"commit": "abc", "dirty": True}
    folder = tmp_path / "draft"
    folder.mkdir()
    (folder / "model.bin").write_bytes(b"12")
    spec, hub = f"model:path={folder},depth=2", "model:path=no/where"
    work = [Workload("w", (Prompt("p", (text,)),), "tests") for text in ("one", "two")]
    known = facts(opened, work[:1], ["ngram", spec, hub])
    assert (known["commit"], known["dirty"]) == ("abc", True)
    assert known["prompt_digests"] == {"w": work[0].digest} != facts(opened, work[1:])["prompt_digests"]
    assert known["drafter_files"] == {spec: mark(folder)}
    assert json.loads(json.dumps(known)) == known


def test_a_mark_changes_with_names_sizes_and_times(tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(b"12")
    seen = [mark(path), mark(tmp_path)]
    assert seen == [mark(path), mark(tmp_path)]
    os.utime(path, ns=(1, 1))
    seen += [mark(path), mark(tmp_path)]
    path.write_bytes(b"123")
    os.utime(path, ns=(1, 1))
    seen += [mark(path), mark(tmp_path)]
    path = path.rename(tmp_path / "b.gguf")
    seen += [mark(path), mark(tmp_path)]
    assert None not in seen
    assert len(set(seen)) == 4  # of a folder of one file it is that of the file
    assert mark(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        ({"samples": ()}, "samples"),
        ({"figures": {"a": {"b": [1.0, float("nan")]}}}, r"figures\.a\.b\.1"),
        ({"figures": {"a": float("inf")}}, "finite"),
        ({"answers": Answers(relative_to="plain", batch="", stack="toy", data="x", shape="y")}, r"answers\.batch"),
        ({"bench": {"command": "x"}}, r"bench\.forerun"),
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
    for path, hint in (
        ("x.txt", ".json file"),
        ("folder.json", "is a folder"),
        ("file/x.json", "not a folder"),
        ("x" * 300 + ".json", "cannot write"),
    ):
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
        (json.dumps(WHOLE), "lacks bench.command"),
        *((json.dumps({**WHOLE, "schema": 99, "bench": odd}), "schema 99") for odd in ([], None, "x", {"command": []})),
        *((json.dumps({**WHOLE, "bench": odd}), "'bench' is missing or odd") for odd in ([], None, "x", 3)),
        (json.dumps({**WHOLE, "samples": {}}), "'samples' is missing or odd"),
        (json.dumps({**WHOLE, "figures": [1]}), "'figures' is missing or odd"),
        pytest.param("[" * 100_000, "cannot be read", id="deep"),
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
