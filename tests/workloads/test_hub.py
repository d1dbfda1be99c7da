"""Public sets: local copies in each set's schema, read by `datasets` itself, and what is said where that fails."""

import json
import sys

import pytest

from forerun.core.errors import LoadError, SpecError
from forerun.workloads import hub
from forerun.workloads.hub import SETS, public

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def _offline(monkeypatch, tmp_path):
    """No network, and no traces in the user's cache."""
    import datasets.config
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    for name in ("HF_DATASETS_CACHE", "HF_MODULES_CACHE", "DOWNLOADED_DATASETS_PATH", "EXTRACTED_DATASETS_PATH"):
        if hasattr(datasets.config, name):
            monkeypatch.setattr(datasets.config, name, tmp_path / "cache" / name)


def jsonl(path, *records):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def parquet(path, *records):
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(records)), path)
    return path


@pytest.mark.parametrize("save", [jsonl, parquet])
@pytest.mark.parametrize("name", SETS)
def test_a_copy_in_the_set_s_schema(tmp_path, records, name, save):
    record = records[name]
    copy = save(tmp_path / f"copy.{save.__name__}", record)
    workload = public(f"hub:{name}={copy}")
    assert workload.prompts == (SETS[name].prompt(record, 0),)
    assert workload.name == name
    assert workload.source == f"{copy} ({SETS[name].split})"


def test_sharegpt_as_the_one_list_that_it_is(tmp_path, records):
    silent = {"id": "x", "conversations": []}
    copy = tmp_path / "sharegpt.json"
    copy.write_text(json.dumps([silent, records["sharegpt"]]), encoding="utf-8")
    (prompt,) = public(f"hub:sharegpt={copy}").prompts
    assert (prompt.id, prompt.turns) == ("sharegpt-1", ("first", "second"))
    copy.write_text(json.dumps([silent, {**silent, "conversations": [{"from": "gpt", "value": "x"}]}]))
    with pytest.raises(LoadError, match="has no prompts in its 2 records"):
        public(f"hub:sharegpt={copy}")


def test_a_folder_is_read_by_split(tmp_path, records):
    record = records["gsm8k"]
    jsonl(tmp_path / "set" / "train.jsonl", {**record, "question": "train"})
    jsonl(tmp_path / "set" / "test.jsonl", {**record, "question": "test"})
    assert public(f"hub:gsm8k={tmp_path / 'set'}").prompts[0].text == "test"
    jsonl(tmp_path / "other" / "train.jsonl", {**record, "question": "train"})
    assert public(f"hub:gsm8k={tmp_path / 'other'}").prompts[0].text == "train"
    jsonl(tmp_path / "other" / "validation.jsonl", record)
    with pytest.raises(LoadError, match="has the splits train, validation, and 'test' is not one of them"):
        public(f"hub:gsm8k={tmp_path / 'other'}")


def test_of_many_records_some_are_taken_evenly(tmp_path, records, monkeypatch):
    monkeypatch.setattr(hub, "MOST", 4)
    copy = jsonl(tmp_path / "copy.jsonl", *({**records["gsm8k"], "question": f"q{i}"} for i in range(10)))
    assert [(p.id, p.text) for p in public(f"hub:gsm8k={copy}").prompts] == [
        (f"gsm8k-{i}", f"q{i}") for i in (0, 2, 5, 7)
    ]


def test_the_usual_places(monkeypatch, records):
    asked = {}

    def load_dataset(repo, config, **options):
        asked[repo] = (config, options)
        return [records[next(name for name, known in SETS.items() if known.repo == repo)]]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for name, known in SETS.items():
        assert public(f"hub:{name}").source == f"{known.repo} ({known.split})"
    assert asked["openai/gsm8k"] == ("main", {"data_files": None, "split": "test", "revision": None})
    config, options = asked["THUDM/LongBench"]
    assert config is None
    assert options["revision"] == "refs/convert/parquet"
    assert "qasper/test/*.parquet" in options["data_files"]["test"]


def test_without_a_network_the_way_out_is_named():
    with pytest.raises(LoadError) as caught:
        public("hub:gsm8k")
    assert str(caught.value).startswith("cannot load hub:gsm8k from openai/gsm8k: ")
    assert str(caught.value).endswith("without a network give a copy, hub:gsm8k=FILE")
    assert "\n" not in str(caught.value)


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SpecError, match=r'hub:gsm8k needs the package datasets: pip install "forerun\[datasets\]"'):
        public("hub:gsm8k")


def test_a_damaged_copy(tmp_path, records):
    copy = tmp_path / "copy.jsonl"
    copy.write_text(json.dumps(records["gsm8k"]) + '\n{"question": ')
    with pytest.raises(LoadError, match=f"cannot load hub:gsm8k={copy} from .*JSON"):
        public(f"hub:gsm8k={copy}")


def test_a_copy_of_another_schema(tmp_path, records):
    copy = jsonl(tmp_path / "copy.jsonl", records["humaneval"])
    with pytest.raises(LoadError, match=r"record 0 of hub:gsm8k=.*: no field 'question' \(it has: task_id, prompt"):
        public(f"hub:gsm8k={copy}")


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("hub:gsm8", SpecError, r"unknown public set 'gsm8'; did you mean 'gsm8k'\?"),
        ("hub:", SpecError, "unknown public set ''"),
        ("hub:gsm8k=", SpecError, "names no copy: write hub:gsm8k=FILE_OR_REPOSITORY"),
        ("hub:gsm8k=nothing.jsonl", LoadError, "nothing.jsonl is no file, no folder and no repository"),
        ("hub:gsm8k=./no/thing", LoadError, "is no file, no folder and no repository"),
    ],
)
def test_a_name_that_cannot_be_meant(spec, error, message):
    with pytest.raises(error, match=message):
        public(spec)


def test_a_copy_of_another_form(tmp_path):
    (tmp_path / "set.zip").write_bytes(b"x")
    with pytest.raises(SpecError, match=r"ends in \.jsonl, \.json, \.parquet, got 'set\.zip'"):
        public(f"hub:gsm8k={tmp_path / 'set.zip'}")
