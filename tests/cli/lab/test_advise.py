"""`forerun lab advise`: a recommendation for each set of prompts, and what it says it was asked."""

import json

import pytest

from forerun.cli.main import main
from forerun.lab.run import load_result


def advise(capsys, models, *argv):
    base = ("-m", str(models["folder"]), "--runtime", "torch", "--threads", "1", "--tokens", "12", "--seconds", "1")
    code = main(["lab", "advise", *base, *argv])
    out, err = capsys.readouterr()
    return code, out, err


def write(path, texts):
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    return str(path)


def test_each_set_is_advised_on(capsys, models, prompts, tmp_path):
    other = write(tmp_path / "others.jsonl", ["x y x y x", "one and one and one", "far far far", "two three two"])
    out = tmp_path / "a.json"
    argv = ("--prompts", str(prompts), "--prompts", other, "-d", "ngram", "--out", str(out))
    code, said, _ = advise(capsys, models, *argv)
    found = load_result(out)
    assert code == 0
    assert set(found.figures["workloads"]) == {"mine", "others"}
    for work in found.figures["workloads"].values():
        assert work["live"]["prompts"] == 4
        assert not work["recommend"]["speculate"]  # of four prompts nothing can be said
        whys = ("too few prompts", "no candidate", "answers were too short", "the machine was not quiet")
        assert work["recommend"]["why"].startswith(whys)
    assert "others (4 prompts" in found.answers["data"]
    assert "measured live" in found.answers["data"]
    assert {"mine", "others"} == set(found.bench["ask"]["prompt_digests"])
    assert "forerun generate -m" in said


def test_sets_of_one_name_are_refused_before_anything_is_loaded(capsys, models, tmp_path):
    same = [write(tmp_path / folder / "mine.jsonl", ["a b a b"]) for folder in ("a", "b")]
    out = tmp_path / "x.json"
    code, said, err = advise(capsys, models, "--prompts", same[0], "--prompts", same[1], "--out", str(out))
    assert (code, said) == (1, "")
    assert err == "Error: --prompts need different names, got mine, mine: rename a file\n"
    assert not list(tmp_path.glob("x.json*"))


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (("--seconds", "0"), "--seconds takes"),
        (("--seconds", "nan"), "--seconds takes"),
        (("--prompts", "none.jsonl"), "none.jsonl"),
        (("-d", "ngramm"), "ngram"),
        (("--out", "results"), ".json"),
    ],
)
def test_wrong_input_is_one_line_and_exit_1(capsys, models, prompts, argv, hint):
    code, out, err = advise(capsys, models, *(() if "--prompts" in argv else ("--prompts", str(prompts))), *argv)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert hint in err
