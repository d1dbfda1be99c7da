"""`forerun lab curve` on tiny models."""

import json

import pytest

from forerun.cli.main import main
from forerun.costs.curve import CostCurve
from forerun.lab.run import load_result

SHORT = ("--rows", "1,4", "--context", "16", "--repeats", "2", "--threads", "1")


def run(capsys, *argv):
    code = main(["lab", "curve", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_every_figure_is_in_the_file_and_tables_are_for_people(capsys, models, tmp_path):
    file = tmp_path / "curve.json"
    argv = ("-m", str(models["folder"]), "--runtime", "torch", *SHORT, "--batch", "1,2", "--out", str(file))
    code, out, err = run(capsys, *argv)
    assert (code, err) == (0, f"written to {file}\n")
    found = load_result(file).figures
    assert set(found) >= {"ms_by_rows", "weights", "isa", "bandwidth_share", "points", "curve", "threads"}
    assert list(found["ms_by_rows"]) == ["1", "4"]
    assert len(found["points"]) == 4
    assert "batch 2, context 16" in out


@pytest.mark.parametrize("feed", ["--tree", "--prompt"])
def test_random_weights_and_ways_to_feed(capsys, feed):
    code, out, _ = run(capsys, "-m", "random:tiny", "--runtime", "torch", *SHORT, feed, "--json")
    assert code == 0
    found = json.loads(out)["figures"]
    assert found["model"] == "random-tiny"
    assert found["feed"] == feed.removeprefix("--")


def test_a_file_is_written_only_if_asked_for_and_holds_the_curve(capsys, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = ("-m", str(models["folder"]), "--runtime", "torch", *SHORT)
    assert run(capsys, *argv)[0] == 0
    assert not list(tmp_path.iterdir())
    assert run(capsys, *argv, "--out", "results/mine.json")[0] == 0
    found = load_result(tmp_path / "results" / "mine.json")
    assert found.experiment == "curve"
    assert found.bench["threads"] == 1
    curve = CostCurve.from_json(found.figures["curve"])
    assert curve.at(4, 1, 16) in {s["seconds"] for s in found.samples} | {
        sum(s["seconds"] for s in found.samples if s["rows"] == 4) / 2
    }
    assert len(found.samples) == 4
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["mine.json"]


def test_an_interrupted_run_goes_on_with_the_rounds_it_has(capsys, tmp_path, monkeypatch):
    argv = ("-m", "random:tiny", "--runtime", "torch", *SHORT, "--out", str(tmp_path / "x.json"))
    real = __import__("forerun.lab.costs.curve", fromlist=["_round"])._round
    rounds = []

    def cut(target, arms, order):
        rounds.append(order)
        if len(rounds) == 2:
            raise KeyboardInterrupt
        return real(target, arms, order)

    monkeypatch.setattr("forerun.lab.costs.curve._round", cut)
    code, _, err = run(capsys, *argv)
    assert code != 0
    assert "kept in" in err
    kept = [json.loads(line) for line in (tmp_path / "x.json.partial").read_text().splitlines()[1:]]
    first = next(unit["value"] for unit in kept if unit["key"] == "round/1")
    assert run(capsys, *argv)[0] == 0
    assert len(rounds) == 3, "the round that was kept is not measured again"
    samples = load_result(tmp_path / "x.json").samples
    assert [s["seconds"] for s in samples if s["round"] == 1] == first
    assert not (tmp_path / "x.json.partial").exists()


def test_quick_takes_fewer_rows_and_rounds(capsys):
    argv = ("-m", "random:tiny", "--runtime", "torch", "--context", "16", "--threads", "1")
    code, out, _ = run(capsys, *argv, "--quick", "--json")
    found = json.loads(out)["figures"]
    assert code == 0
    assert list(found["ms_by_rows"]) == ["1", "2", "4", "8"]
    assert found["repeats"] == 3


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
        (("--out", "x"), ".json"),
        (("--rows", "4096"), "at most"),
        (("--runtime", "hf"), "hf"),
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
