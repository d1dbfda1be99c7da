"""`forerun lab trace`: the page is written whole, what cannot be meant is refused before a model is loaded."""

import json
import re

import pytest

from forerun.cli.main import main


def trace(capsys, models, *argv):
    base = ("-m", str(models["folder"]), "--runtime", "torch", "--threads", "1", "--max-tokens", "20", "--ignore-eos")
    code = main(["lab", "trace", *base, *argv])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("more", [(), ("--temperature", "0.9")])
def test_the_page_is_written(capsys, models, tmp_path, more):
    path = tmp_path / "deep" / "trace.html"
    code, out, err = trace(capsys, models, "-d", "suffix", "--compare", "plain", *more, "-o", str(path), "a b a b a b")
    assert code == 0
    assert f"written to {path}" in err
    html = path.read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])
    assert f"target passes {len(data['steps'])};" in out
    assert out.startswith("".join(word[0] for word in data["words"]))
    assert " ms a token, " in out
    assert "fingerprint" in html
    assert ("seed" in html) == bool(more)
    assert [path.name for path in path.parent.iterdir()] == ["trace.html"]


def test_raw_text_goes_without_the_template(capsys, models, tmp_path):
    found = []
    for more in ((), ("--raw",)):
        code, out, _ = trace(capsys, models, "--json", *more, "-o", str(tmp_path / "t.html"), "a b a b")
        assert code == 0
        found.append(json.loads(out)["text"])
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (("-o", "trace.txt", "hi"), ".html"),
        (("-o", "{folder}", "hi"), ".html"),
        (("-o", "{folder}/taken.html", "hi"), "is a folder"),
        (("-o", "{folder}/file/trace.html", "hi"), "cannot be written"),
        (("-o", "t.html", ""), "empty"),
        (("-o", "t.html", "-d", "ngramm", "hi"), "ngram"),
        (("-o", "t.html", "--compare", "suffixx", "hi"), "suffix"),
        (("-o", "t.html", "--temperature", "-1", "hi"), "temperature"),
        (("-o", "t.html", "--runtime", "hf", "hi"), "hf"),
        (("-o", "t.html", "-m", "random:tiny", "hi"), "no tokenizer"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_exit_1(capsys, models, tmp_path, monkeypatch, argv, hint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.html").mkdir()
    (tmp_path / "file").write_text("")
    code, out, err = trace(capsys, models, *(arg.replace("{folder}", str(tmp_path)) for arg in argv))
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert hint in err
    assert {path.name for path in tmp_path.iterdir()} == {"taken.html", "file"}
