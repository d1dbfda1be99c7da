"""`forerun lab curve` on tiny models."""

import json

import pytest

from forerun.cli.main import main

QUICK = ("--rows", "1,4", "--context", "16", "--repeats", "2")


@pytest.fixture(autouse=True)
def quick_reader(monkeypatch):
    monkeypatch.setattr("forerun.lab.bandwidth.reader", lambda: lambda nbytes, seconds: 2e10)


def run(capsys, *argv):
    code = main(["lab", "curve", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_last_line_is_json_with_every_figure(capsys, models):
    argv = ("-m", str(models["folder"]), "--runtime", "torch", *QUICK, "--batch", "1,2")
    code, out, err = run(capsys, *argv, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out.splitlines()[-1])
    assert set(found) >= {"ms_by_rows", "weights", "isa", "bandwidth_share", "points", "curve", "threads"}
    assert list(found["ms_by_rows"]) == ["1", "4"]
    assert len(found["points"]) == 4
    assert "batch 2, context 16" in out
    _, out, _ = run(capsys, *argv)
    assert "{" not in out


@pytest.mark.parametrize("feed", ["--tree", "--prompt"])
def test_random_weights_and_ways_to_feed(capsys, feed):
    code, out, _ = run(capsys, "-m", "random:tiny", "--runtime", "torch", *QUICK, feed, "--json")
    assert code == 0
    found = json.loads(out.splitlines()[-1])
    assert found["model"] == "random-tiny"
    assert found["feed"] == feed.removeprefix("--")


def test_files_are_written_only_if_asked_for(capsys, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = ("-m", str(models["folder"]), "--runtime", "torch", *QUICK)
    assert run(capsys, *argv)[0] == 0
    assert not list(tmp_path.iterdir())
    assert run(capsys, *argv, "--out", "mine")[0] == 0
    found = json.loads((tmp_path / "results" / "mine.json").read_text())
    assert {"command", "processor", "threads", "commit", "forerun"} <= set(found["bench"])
    assert found["figures"]["ms_by_rows"]
    assert {path.suffix for path in (tmp_path / "results").iterdir()} <= {".json", ".svg"}


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (("--rows", "1,x"), "--rows"),
        (("--rows", ""), "--rows"),
        (("--rows", "0"), "--rows"),
        (("--batch", "1,,2"), "--batch"),
        (("--context", "-4"), "--context"),
        (("--rows", "4,4"), "different"),
        (("--repeats", "0"), "repeats"),
        (("--out", "../x"), "plain name"),
        (("--rows", "4096"), "at most"),
        (("--runtime", "hf"), "hf"),
        (("--runtime", "rocket"), "runtime"),
        (("--threads", "0"), "threads"),
        (("-m", "random:none"), "random weights"),
        (("--context", "100000"), "context"),
    ],
)
def test_wrong_options_are_one_line_and_exit_1(capsys, argv, hint):
    code, out, err = run(capsys, "-m", "random:tiny", *argv)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert hint in err


def test_options_are_suggested_and_an_experiment_is_needed(capsys):
    for argv, hint in ((["lab", "curve", "--row", "1", "--contexts", "2"], "--context"), (["lab"], "EXPERIMENT")):
        with pytest.raises(SystemExit) as caught:
            main(argv)
        assert caught.value.code == 2
        assert hint in capsys.readouterr().err


def test_the_experiment_has_help_with_an_example(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["lab", "curve", "--help"])
    assert caught.value.code == 0
    assert "forerun lab curve --weights int8" in capsys.readouterr().out
