"""`forerun lab domains`: a table for people, JSON for machines that ask, a file with its bench."""

import json
import os
import shutil

import pytest

from forerun.cli.main import main
from forerun.lab.run import load_result
from forerun.workloads.workload import workload


def domains(capsys, models, *argv):
    base = ("-m", str(models["folder"]), "--runtime", "torch", "--threads", "1", "--tokens", "12", "--ignore-eos")
    code = main(["lab", "domains", *base, *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_results_and_their_bench(capsys, models, prompts, tmp_path):
    out = tmp_path / "results" / "d.json"
    code, said, _ = domains(capsys, models, "--workload", str(prompts), "-d", "ngram", "--out", str(out))
    assert code == 0
    found = load_result(out)
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
    assert bench["ask"]["prompt_digests"] == {name: workload(str(prompts)).digest}
    assert bench["date"] <= bench["ended"]
    assert arms["ngram"]["speedup_answer"]["of"] == 4
    assert arms["ngram"]["first_ms"] > 0
    assert set(found.figures["memory_mb"]) == {"plain", "plain again", "ngram"}
    assert found.figures["memory_mb"]["plain"] == found.figures["memory_mb"]["plain again"]
    assert "whole answer" in said
    assert "noise floor" in said
    assert "ngram" in said


def test_quick_is_quick_and_sampled_has_no_bare_loop(capsys, models, prompts):
    argv = ("--workload", str(prompts), "--quick", "--temperature", "0.8", "--top-p", "0.9", "-d", "suffix")
    code, said, _ = domains(capsys, models, *argv, "--json")
    found = json.loads(said)
    (work,) = found["figures"]["workloads"].values()
    assert (code, work["prompts"]) == (0, 3)
    assert set(work["arms"]) == {"plain", "suffix"}
    assert "temperature 0.8" in found["answers"]["data"]


@pytest.fixture
def broken_off(monkeypatch):
    """The next command is broken off after two units."""
    from forerun.lab import paired

    def arm():
        real, count = paired.Session.unit, iter(range(100))

        def unit(self, *args):
            if next(count) == 2:
                raise KeyboardInterrupt
            return real(self, *args)

        monkeypatch.setattr(paired.Session, "unit", unit)

    return arm


def test_ctrl_c_keeps_what_was_measured_and_says_how_to_go_on(capsys, models, prompts, tmp_path, broken_off):
    out = tmp_path / "d.json"
    argv = ("--workload", str(prompts), "-d", "ngram", "--out", str(out))
    broken_off()
    code, said, err = domains(capsys, models, *argv)
    assert (code, said) == (130, "")
    assert "2 units are kept" in err
    assert not out.exists()
    code, _, err = domains(capsys, models, *argv)
    assert code == 0
    assert "2 units are measured already" in err
    assert load_result(out).bench["resumed_units"] == 2


def test_other_texts_under_the_same_name_are_another_run_and_the_old_one_is_kept(
    capsys, models, prompts, tmp_path, broken_off
):
    out = tmp_path / "d.json"
    argv = ("--workload", str(prompts), "-d", "ngram", "--out", str(out))
    broken_off()
    assert domains(capsys, models, *argv)[0] == 130
    left = (tmp_path / "d.json.partial").read_text()
    prompts.write_text(prompts.read_text().replace("red", "blue"))
    code, _, err = domains(capsys, models, *argv)
    assert code == 0
    assert "prompt_digests" in err
    assert "d.json.partial.old" in err
    assert load_result(out).bench["resumed_units"] == 0
    assert (tmp_path / "d.json.partial.old").read_text() == left
    assert not (tmp_path / "d.json.partial").exists()


def test_a_draft_model_that_changed_is_another_run(capsys, models, prompts, tmp_path, broken_off):
    out, draft = tmp_path / "d.json", shutil.copytree(models["draft"], tmp_path / "draft")
    argv = ("--workload", str(prompts), "-d", f"model:path={draft}", "--out", str(out))
    broken_off()
    assert domains(capsys, models, *argv)[0] == 130
    os.utime(draft / "config.json", ns=(1, 1))
    code, _, err = domains(capsys, models, *argv)
    assert code == 0
    assert "other drafter_files:" in err


def test_a_logged_run_is_not_gone_on_with_and_promises_nothing(capsys, models, prompts, tmp_path, broken_off):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    out, steps = tmp_path / "d.json", tmp_path / "steps.parquet"
    argv = ("--workload", str(prompts), "-d", "ngram", "--out", str(out))
    broken_off()
    code, _, err = domains(capsys, models, *argv, "--log-steps", str(steps))
    assert code == 130
    assert "goes on" not in err
    assert not list(tmp_path.glob("d.json*"))
    code, _, err = domains(capsys, models, *argv, "--log-steps", str(steps))
    assert (code, "measured already" in err) == (0, False)
    assert load_result(out).bench["ask"]["log_steps"] is True


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (("--workload", "none.jsonl"), "none.jsonl"),
        (("--workload", "cod"), "did you mean 'code'"),
        (("--workload", "code", "--workload", "code"), "different names"),
        (("--workload", "code", "--prompts", "0"), "--prompts"),
        (("--workload", "code", "--rounds", "0"), "rounds"),
        (("--workload", "code", "--turns", "0"), "turns must be"),
        (("--workload", "code", "--turns", "-1"), "turns must be"),
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
