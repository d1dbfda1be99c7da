"""`forerun lab report`: one page of results files, or one line that says which of them cannot be used."""

import json

import pytest

from forerun.cli.main import main

BENCH = {
    **dict.fromkeys(("command", "date", "forerun", "python", "system", "processor"), "x"),
    **{"commit": "", "cores": 1, "load_average": [0.1, 0.1, 0.1]},
}
ANSWERS = dict.fromkeys(("relative_to", "batch", "stack", "data", "shape"), "x")
ARM = {
    "ms_per_token": 1.0, "speedup": {"value": 1.5, "low": 1.4, "high": 1.6, "of": 3}, "verdict": "faster", "tau": 2.0,
    "acceptance": 0.5, "drafted": 4, "draft_share": 0.1, "same_text": 3, "answers": 3,
    "acceptance_by_position": [], "speedup_answer": None,
}  # fmt: skip
WORK = {"code": {"prompts": 3, "noise": None, "arms": {"ngram": ARM}}}
FIGURES = {"workloads": WORK, "noise": None, "memory_mb": {}, "left_out": []}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "results" / "domains.json"
    path.parent.mkdir()
    whole = {
        "schema": 1,
        "experiment": "domains",
        "bench": BENCH,
        "answers": ANSWERS,
        "figures": FIGURES,
        "samples": [1],
    }
    path.write_text(json.dumps(whole))
    return path


def report(capsys, *argv):
    code = main(["lab", "report", *map(str, argv)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(("name", "beside"), [("r.html", 0), ("r.md", 1)])
def test_the_page_and_what_belongs_to_it(capsys, file, tmp_path, name, beside):
    code, out, err = report(capsys, file, "-o", tmp_path / "new" / name)
    assert code == 0
    assert "domains" in out
    assert "written to" in err
    code, out, _ = report(capsys, file, "-o", tmp_path / "new" / name, "--json")
    written = json.loads(out)["written"]
    assert len(written) == 1 + beside
    assert sorted(written) == sorted(str(path) for path in (tmp_path / "new").iterdir())
    assert "1.50 (1.40..1.60)" in (tmp_path / "new" / name).read_text(encoding="utf-8")


def test_warnings_are_said(capsys, file, tmp_path):
    whole = json.loads(file.read_text())
    whole["bench"]["dirty"] = True
    file.write_text(json.dumps(whole))
    _, _, err = report(capsys, file, "-o", tmp_path / "r.html")
    assert "warning: domains.json: Measured with sources" in err


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('{"schema": 7}', "schema 7"),
        ("{", "cannot be read"),
        ("[]", "schema None"),
        (None, "there is no results file"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_nothing_is_written(capsys, file, tmp_path, text, hint):
    odd = tmp_path / "odd.json"
    if text is not None:
        odd.write_text(text)
    code, out, err = report(capsys, file, odd, "-o", tmp_path / "r.md")
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert hint in err
    assert str(odd) in err
    assert not list(tmp_path.glob("r*.*"))


@pytest.mark.parametrize(
    ("name", "hint"), [("r.pdf", ".html"), ("results", ".html"), ("results/domains.json/r.md", "folder")]
)
def test_a_page_that_cannot_be_written_is_refused(capsys, file, tmp_path, name, hint):
    code, out, err = report(capsys, file, "-o", tmp_path / name)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert hint in err
