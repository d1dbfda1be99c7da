"""`forerun lab phases` on a tiny model."""

import pytest

from forerun.cli.main import main
from forerun.lab.run import load_result


@pytest.fixture
def phases(capsys, models, prompts):
    def run(*argv):
        base = ("-m", str(models["folder"]), "--runtime", "torch", "--threads", "1", "--tokens", "8", "--ignore-eos")
        code = main(["lab", "phases", *base, "--workload", str(prompts), *argv])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.mark.parametrize("sampling", [(), ("--temperature", "0.8", "--top-p", "0.9")])
def test_the_file_holds_what_is_printed(phases, tmp_path, sampling):
    out = tmp_path / "phases.json"
    code, said, _ = phases("-d", "suffix", "--depths", "1", "--out", str(out), *sampling)
    assert code == 0
    found = load_result(out)
    (here,) = found.figures["workloads"].values()
    assert here["plain"]["split"]["ms_per_token"]["sampling"] > 0
    assert list(here["drafters"]) == ["suffix"]
    assert {"split", "prediction", "leviathan", "price", "volume", "advice"} <= set(here["drafters"]["suffix"])
    assert {sample["arm"] for sample in found.samples} == {
        "plain",
        "plain again",
        "plain, watched",
        "suffix",
        "suffix, watched",
        "suffix:depth=1",
    }
    assert "milliseconds a step" in said
    assert "measured: all answers pooled" in said


def test_answers_of_one_token_have_no_split_but_a_report(phases, tmp_path):
    out = tmp_path / "short.json"
    code, said, _ = phases("-d", "suffix", "--tokens", "1", "--depths", "1", "--out", str(out))
    assert code == 0
    (here,) = load_result(out).figures["workloads"].values()
    assert here["plain"]["split"] is None
    assert here["drafters"]["suffix"]["prediction"] is None
    assert "too short to time" in said


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (("-d", "none"), "guesses nothing"),
        (("-d", "suffix:dept=3"), "depth"),
        (("-d", "suffix", "--depths", "1,1"), "different"),
        (("--depths", "-1"), "--depths"),
        (("--prompts", "0"), "--prompts"),
        (("-d", "skip:layers=20"), "fewer layers"),
    ],
)
def test_wrong_options_are_one_line_and_exit_1(phases, argv, hint):
    code, out, err = phases(*argv)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert hint in err


def test_steps_are_logged_under_the_stopwatch_too(phases, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    log = tmp_path / "steps.parquet"
    assert phases("-d", "suffix", "--depths", "1", "--log-steps", str(log))[0] == 0
    arms = set(parquet.read_table(log).column("arm").to_pylist())
    assert arms >= {"plain", "plain, watched", "suffix", "suffix, watched", "suffix:depth=1"}
