"""`forerun lab shape` on a tiny model."""

import pytest

from forerun.cli.main import main
from forerun.lab.run import load_result


@pytest.fixture(autouse=True)
def no_probe(monkeypatch):
    monkeypatch.setattr("forerun.lab.shape.probe", lambda target: None)


@pytest.fixture
def shape(capsys, models, prompts):
    def run(*argv):
        base = ("-m", str(models["folder"]), "--runtime", "torch", "--threads", "1", "--tokens", "8", "--ignore-eos")
        grid = ("--depths", "1,2", "--widths", "1,2", "--nodes", "3", "--workload", str(prompts))
        code = main(["lab", "shape", *base, *grid, *argv])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_the_file_holds_what_is_printed_and_a_second_run_goes_on(shape, tmp_path, monkeypatch):
    out = tmp_path / "results" / "shape.json"
    argv = ("-d", "suffix", "-d", "ngram", "--out", str(out))
    with monkeypatch.context() as broken:
        broken.setattr("forerun.lab.shape._workload", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            shape(*argv)
    assert not out.exists()
    code, said, err = shape(*argv)
    assert code == 0
    assert "going on with" in err
    found = load_result(out)
    assert found.bench["resumed_units"] == 5  # four prompts and the probe
    (here,) = found.figures["workloads"].values()
    assert list(here["drafters"]) == ["suffix", "ngram"]
    assert [point["depth"] for point in here["drafters"]["suffix"]["depth"]] == [1, 2]
    assert here["drafters"]["ngram"]["width"] == []
    assert "probe for a node count was left out" in said
    assert "depths 1,2, widths 1,2, nodes 3" in found.answers["shape"]
    assert not list(out.parent.glob("*.partial"))


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (("-d", "none"), "guesses nothing"),
        (("-d", "sufix"), "suffix"),
        (("--depths", "1,1"), "different"),
        (("--depths", "0"), "--depths"),
        (("--depths", "1,300"), "depth must be"),
        (("--widths", "two"), "--widths"),
        (("--nodes", ""), "--nodes"),
        (("--tokens", "0"), "tokens"),
        (("-d", "suffix", "--verify", "block"), "chains"),
        (("-d", "skip:layers=20"), "fewer layers"),
    ],
)
def test_wrong_options_are_one_line_and_exit_1(shape, argv, hint):
    code, out, err = shape(*argv)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert hint in err
