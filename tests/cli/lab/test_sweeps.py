"""`forerun lab batch`, `context`, `temperature`, `weights` and `size` on tiny models."""

import json

import pytest

from forerun.cli.main import main
from forerun.lab.run import load_result
from forerun.native import ext
from forerun.testing.tiny import Tiny, write_folder

native = pytest.mark.skipif(bool(ext.why_not()), reason="the extension is not compiled")
SPEED = ("--threads", "1", "--tokens", "8")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("other") / "qwen", Tiny("qwen2", layers=3))


def lab(capsys, *argv):
    code = main(["lab", *map(str, argv)])
    out, err = capsys.readouterr()
    return code, out, err


def test_batches(capsys, models, prompts, tmp_path):
    out = tmp_path / "b.json"
    argv = ("-m", models["folder"], "--runtime", "torch", *SPEED, "--workload", prompts, "-d", "ngram", "--out", out)
    code, said, _ = lab(capsys, "batch", "--batch", "4,1", *argv)
    assert code == 0
    found = load_result(out)
    (points,) = (sets["points"] for sets in found.figures["sets"].values())
    assert [point["value"] for point in points] == [1, 4]
    assert found.answers["batch"] == "1, 4"
    assert "mixed in every batch" in found.answers["data"]
    assert [point["batches"] for point in points] == [4, 1]
    assert len(found.samples) == 3 * (4 + 1)
    assert "4 of 1, 1 of 4; below 6 there is no interval (batch 1, 4)" in said


def test_contexts_of_a_file(capsys, models, tmp_path):
    text = tmp_path / "long.txt"
    text.write_text("It was a bright cold day in April, and the clocks were striking. " * 9)
    argv = ("-m", models["folder"], "--runtime", "torch", *SPEED, "--text", text, "--pieces", "3", "-d", "suffix")
    code, said, _ = lab(capsys, "context", *argv, "--question", "Why?", "--quick", "--json")
    assert code == 0
    found = json.loads(said)
    (points,) = (sets["points"] for sets in found["figures"]["sets"].values())
    assert [point["value"] for point in points] == [248], "the model's limit less the answer"
    assert "long.txt" in found["answers"]["data"]


def test_temperatures(capsys, models, prompts):
    argv = ("-m", models["folder"], "--runtime", "torch", *SPEED, "--workload", prompts, "-d", "ngram")
    code, said, _ = lab(capsys, "temperature", "--temperature", "0,0.7", "--top-p", "0.9", *argv, "--json")
    assert code == 0
    found = json.loads(said)
    (points,) = (sets["points"] for sets in found["figures"]["sets"].values())
    assert [point["value"] for point in points] == [0.0, 0.7]
    assert "temperatures 0, 0.7, top-p 0.9, seed 0" in found["answers"]["data"]


@native
def test_formats_and_draft_lengths(capsys, models, prompts, tmp_path):
    out = tmp_path / "w.json"
    argv = ("-m", models["folder"], *SPEED, "--ignore-eos", "--workload", prompts, "-d", "ngram", "--depths", "2,4")
    code, said, _ = lab(capsys, "weights", "--weights", "bf16,int8", *argv, "--out", out)
    assert code == 0
    found = load_result(out)
    assert [f["weights"] for f in found.figures["formats"]] == ["bf16", "int8"]
    for format in found.figures["formats"]:
        (made,) = format["sets"].values()
        assert len(made["visits_ms_per_token"]) == 2
        drafter = made["drafters"]["ngram"]
        assert set(drafter["depths"]) == {"2", "4"}
        assert (drafter["best_depth"], drafter["unknown"]) == (None, "too few prompts to say")
        assert drafter["depths"]["2"]["same_text"] == drafter["depths"]["2"]["answers"] == 8  # two visits
    assert "no conclusion about formats" in said
    assert found.figures["left_out"] == []
    assert len(found.samples) == 2 * 2 * 4 * 4


def test_two_targets_of_different_kinds(capsys, models, other, prompts, tmp_path):
    small = models["folder"]
    drafters = ("-d", "ngram", "-d", f"{other}=skip:layers=1")
    argv = ("-m", small, "-m", other, "--runtime", "torch", *SPEED, "--ignore-eos", "--workload", prompts, *drafters)
    out = tmp_path / "size.json"
    code, said, err = lab(capsys, "size", *argv, "--out", out)
    assert (code, err) == (0, f"written to {out}\n")
    found = load_result(out).figures
    one, two = found["targets"]
    (first,), (second,) = one["sets"].values(), two["sets"].values()
    assert (list(first["drafters"]), list(second["drafters"])) == (["ngram"], ["skip:layers=1"])
    assert second["drafters"]["skip:layers=1"]["draft_ms_per_guess"] > 0
    assert "another network" in found["differ"]
    assert "no conclusion about size" in said


def test_sizes_without_texts_are_predicted_from_costs(capsys, models, tmp_path):
    out = tmp_path / "s.json"
    argv = ("-m", "random:tiny", "-m", models["folder"], "--runtime", "torch", "--threads", "1", "--context", "8")
    code, said, _ = lab(capsys, "size", *argv, "-d", "skip:layers=1", "--acceptance", "0.7", "--quick", "--out", out)
    assert code == 0
    found = load_result(out)
    assert [target["model"] for target in found.figures["targets"]] == ["random-tiny", "folder"]
    assert found.figures["acceptance"] == 0.7
    assert len(found.samples) == 2 * 3
    assert "a prediction from an acceptance given" in found.answers["relative_to"]
    assert "another tokenizer" in said


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (("batch", "--batch", "0"), "--batch"),
        (("batch", "--batch", "2000"), "different prompts"),
        (("batch", "-m", "random:tiny"), "random weights"),
        (("batch", "--kv-tokens", "64", "--batch", "4", "--prompts", "4"), "kv_tokens is 64"),
        (("context", "--pieces", "0"), "--pieces"),
        (("context", "--context", "1,x"), "--context"),
        (("context", "--context", "100000"), "no room for the answer"),
        (("context", "--context", "9"), "cannot be cut"),
        (("context", "--text", "none.txt"), "none.txt"),
        (("temperature", "--temperature=-1,2"), "--temperature"),
        (("temperature", "--top-p", "2"), "top_p"),
        (("temperature", "--out", "x"), ".json"),
        (("weights", "--weights", "q5"), "weights"),
        (("weights", "--weights", ","), "--weights"),
        (("weights", "--depths", "0"), "--depths"),
        (("weights", "-d", "ngram:depth=3"), "--depths"),
        (("weights", "-d", "none"), "depth"),
        (("size",), "two or more"),
        (("size", "-m", "a", "-m", "a"), "different"),
        (("size", "-m", "random:tiny", "-m", "b"), "--acceptance"),
        (("size", "-m", "a", "-m", "b", "-d", "a=ngram"), "b has no drafter"),
        (("size", "-m", "random:tiny", "-m", "b", "--acceptance", "1.5"), "alpha"),
        (("size", "-m", "random:tiny", "-m", "b", "--acceptance", "0.5", "--log-steps", "s.parquet"), "--log-steps"),
        (("weights", "--weights", "bf16", "--log-steps", "s.txt"), ".parquet"),
        (("size", "-m", "random:tiny", "-m", "b", "--acceptance", "0.5", "-d", "skip:width=2"), "chains"),
    ],
)
def test_bad_input_is_one_line(capsys, models, argv, hint):
    name, *rest = argv
    model = () if name == "size" or "-m" in rest else ("-m", models["folder"])
    code, out, err = lab(capsys, name, *model, *rest)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert hint in err


def logged(path):
    parquet = pytest.importorskip("pyarrow.parquet")
    return set(parquet.read_table(path).column("workload").to_pylist())


def test_steps_of_targets_are_logged_visit_by_visit(capsys, models, other, prompts, tmp_path):
    log, names = tmp_path / "steps.parquet", ("folder", "qwen")
    argv = ("-m", models["folder"], "-m", other, "--runtime", "torch", *SPEED, "--workload", prompts, "-d", "ngram")
    code, _, _ = lab(capsys, "size", *argv, "--ignore-eos", "--log-steps", log)
    assert code == 0
    places = [f"mine, visit {turn} of {number}, {model}" for turn in (1, 2) for number, model in enumerate(names)]
    assert logged(log) == set(places)


@native
def test_steps_of_formats_are_logged_visit_by_visit(capsys, models, prompts, tmp_path):
    log = tmp_path / "steps.parquet"
    argv = ("-m", models["folder"], *SPEED, "--ignore-eos", "--workload", prompts, "-d", "ngram", "--depths", "2")
    assert lab(capsys, "weights", "--weights", "bf16", *argv, "--log-steps", log)[0] == 0
    assert logged(log) == {f"mine, visit {turn} of 0, bf16 weights, auto kv" for turn in (1, 2)}


@pytest.mark.parametrize("name", ["batch", "context", "temperature", "weights", "size"])
def test_help_has_an_example(capsys, name):
    with pytest.raises(SystemExit) as caught:
        main(["lab", name, "--help"])
    assert caught.value.code == 0
    assert f"forerun lab {name}" in capsys.readouterr().out


def test_a_sweep_that_was_cut_short_goes_on(capsys, models, prompts, tmp_path, monkeypatch):
    from forerun.lab.arms import EngineArm

    out = tmp_path / "b.json"
    argv = ("-m", models["folder"], "--runtime", "torch", *SPEED, "--workload", prompts, "-d", "ngram", "--out", out)
    real, calls = EngineArm.answer, []

    def cut(self, *args):
        calls.append(self.name)
        if len(calls) == 3 * 2 + 1:  # warmed up, one unit is done
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(EngineArm, "answer", cut)
    code, _, err = lab(capsys, "batch", "--batch", "2", *argv)
    assert code != 0
    assert "1 units are kept" in err
    assert not out.exists()
    assert lab(capsys, "batch", "--batch", "2", *argv)[0] == 0
    assert len(load_result(out).samples) == 3 * 2
