"""`forerun lab domains`: a table for people, one line of JSON for machines, a file with its bench."""

import json

import pytest

from forerun.cli.main import main
from forerun.lab.run import load_result


def domains(capsys, models, *argv):
    base = ("-m", str(models["folder"]), "--runtime", "torch", "--threads", "1", "--tokens", "12", "--ignore-eos")
    code = main(["lab", "domains", *base, *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_results_and_their_bench(capsys, models, prompts, tmp_path):
    out = tmp_path / "results" / "d.json"
    code, said, _ = domains(capsys, models, "--workload", str(prompts), "-d", "ngram", "--out", str(out))
    assert code == 0
    last = json.loads(said.splitlines()[-1])
    found = load_result(out)
    assert last["figures"] == found.figures
    (name,) = found.figures["workloads"]
    arms = found.figures["workloads"][name]["arms"]
    assert set(arms) == {"plain", "ngram", "bare"}
    assert arms["ngram"]["same_text"] == arms["ngram"]["answers"] == 4
    assert found.figures["noise"]["of"] == 4
    assert "calm" in found.figures["noise"]
    assert set(found.answers) == {"relative_to", "batch", "stack", "data", "shape"}
    bench = found.bench
    assert {"fingerprint", "isa", "weights", "bandwidth_gb_s", "commit", "dirty", "drafters", "ask"} <= set(bench)
    assert len(found.samples) == 4 * 4
    assert "noise floor" in said
    assert "ngram" in said


def test_quick_is_quick_and_sampled_has_no_bare_loop(capsys, models, prompts):
    argv = ("--workload", str(prompts), "--quick", "--temperature", "0.8", "--top-p", "0.9", "-d", "suffix")
    code, said, _ = domains(capsys, models, *argv)
    found = json.loads(said.splitlines()[-1])
    (work,) = found["figures"]["workloads"].values()
    assert (code, work["prompts"]) == (0, 3)
    assert set(work["arms"]) == {"plain", "suffix"}
    assert "temperature 0.8" in found["answers"]["data"]


def test_ctrl_c_keeps_what_was_measured_and_says_how_to_go_on(capsys, models, prompts, tmp_path, monkeypatch):
    from forerun.lab import paired

    out, real, count = tmp_path / "d.json", paired._Session.unit, iter(range(100))

    def unit(self, *args):
        if next(count) == 2:
            raise KeyboardInterrupt
        return real(self, *args)

    argv = ("--workload", str(prompts), "-d", "ngram", "--out", str(out))
    monkeypatch.setattr(paired._Session, "unit", unit)
    code, said, err = domains(capsys, models, *argv)
    assert (code, said) == (130, "")
    assert "2 units are kept" in err
    assert not out.exists()
    code, _, err = domains(capsys, models, *argv)
    assert code == 0
    assert "2 units are measured already" in err
    assert load_result(out).bench["resumed_units"] == 2


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (("--workload", "none.jsonl"), "none.jsonl"),
        (("--workload", "cod"), "did you mean 'code'"),
        (("--workload", "code", "--workload", "code"), "different names"),
        (("--workload", "code", "--prompts", "0"), "--prompts"),
        (("--workload", "code", "--rounds", "0"), "rounds"),
        (("--workload", "code", "-d", "ngramm"), "ngram"),
        (("--workload", "code", "-d", "ngram:dept=3"), "depth"),
        (("--workload", "code", "--out", "x.txt"), ".json"),
        (("--workload", "code", "--runtime", "hf"), "hf"),
        (("--workload", "code", "-d", "model"), "needs a model"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_exit_1(capsys, models, argv, hint):
    code, out, err = domains(capsys, models, *argv)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert hint in err
