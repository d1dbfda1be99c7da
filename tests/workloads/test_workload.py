"""One name for suites, files and public sets."""

import json

import pytest

from forerun.core.errors import LoadError, SpecError
from forerun.workloads.suites import SUITES, suite
from forerun.workloads.workload import workload


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [{"text": f"text {i}", "category": "odd" if i % 2 else "even"} for i in range(4)]
    for name in ("some.jsonl", "two#even.jsonl", "code"):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_by_its_name(name):
    found = workload(name)
    assert (found.name, found.prompts) == (name, suite(name))
    assert found.source == "forerun"


def test_a_path(folder):
    for said in ("some.jsonl", "./some.jsonl", str(folder / "some.jsonl"), folder / "some.jsonl"):
        assert len(workload(said)) == 4
    assert workload("some.jsonl").source == "some.jsonl"


def test_a_category_of_anything(folder):
    chosen = workload("some.jsonl#odd")
    assert chosen.name == "some#odd"
    assert [prompt.text for prompt in chosen.prompts] == ["text 1", "text 3"]
    assert {prompt.category for prompt in workload("translation#de-en").prompts} == {"de-en"}
    with pytest.raises(SpecError, match=r"unknown category of some 'od'; did you mean 'odd'\? .allowed: even, odd."):
        workload("some.jsonl#od")


def test_a_mark_in_a_file_s_name_is_no_category(folder):
    assert len(workload("two#even.jsonl")) == 4
    assert len(workload("two#even.jsonl#even")) == 2


def test_a_suite_comes_before_a_file_of_its_name(folder):
    assert workload("code").source == "forerun"
    assert workload("./code").source == "code"


def test_a_category_of_a_public_set(folder):
    pytest.importorskip("datasets")
    record = {"prompt": ["x"], "prompt_id": 1, "category": "math"}
    (folder / "mt.jsonl").write_text(
        "\n".join(json.dumps({**record, "category": c, "prompt_id": i}) for i, c in enumerate("ab"))
    )
    assert [prompt.id for prompt in workload("hub:mt_bench=mt.jsonl#b").prompts] == ["1"]


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("dialog", SpecError, r"unknown workload 'dialog'; did you mean 'dialogue'\?"),
        ("gsm8k", SpecError, r"unknown workload 'gsm8k'; did you mean 'hub:gsm8k'\?"),
        ("", SpecError, "unknown workload ''"),
        ("no/such", LoadError, "no prompt file no/such: give an existing file or folder, or a suite"),
        ("nothing.jsonl", LoadError, "no prompt file nothing.jsonl"),
        ("nothing.jsonl#x", LoadError, "no prompt file nothing.jsonl"),
        ("x" * 5000, SpecError, "unknown workload 'xxx"),
        ("a\0b.txt", LoadError, "no prompt file"),
    ],
)
def test_a_name_that_means_nothing(folder, name, error, message):
    with pytest.raises(error, match=message):
        workload(name)
