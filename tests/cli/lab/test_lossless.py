"""`forerun lab lossless`: a verdict by its exit status, the differences on paper, every number in the file."""

import json

import pytest

from forerun.cli.main import main
from forerun.lab.lossless import exact, sampled
from forerun.lab.run import load_result
from forerun.testing.enumeration import Case
from forerun.testing.tiny import Tiny, write_folder

FEW = ("--tokens", "8", "--batch", "2", "--answers", "8")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny model whose draws differ."""
    return write_folder(tmp_path_factory.mktemp("unsure") / "model", Tiny(sharpness=1.5, seed=3))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nothing is measured of memory, and what other tests run at length is short here."""
    monkeypatch.setattr("forerun.lab.bench.reader", lambda: lambda nbytes, seconds: 2e10)
    monkeypatch.setattr(exact, "cases", lambda verify, quick=False: [Case("sampled", "token", table="dense")])
    monkeypatch.setattr(sampled, "REPETITIONS", 5)


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(
        "\n".join(json.dumps({"text": text}) for text in ("one two one two", "a b a b a", "the sea the sea"))
    )
    return path


def lossless(capsys, model, *argv):
    code = main(["lab", "lossless", "-m", str(model), "--runtime", "torch", "--threads", "1", *FEW, *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_whole_run(capsys, model, prompts, tmp_path):
    out = tmp_path / "results" / "lossless.json"
    argv = ("--workload", str(prompts), "-d", "prediction", "-d", "skip:layers=1,law=sampled", "--out", str(out))
    code, said, _ = lossless(capsys, model, *argv)
    found = load_result(out)
    assert found.figures["verdict"] == "lossless", found.figures["findings"]
    assert code == 0
    assert {sample["part"] for sample in found.samples} == {"identity", "rows", "exact", "sampled"}
    assert set(found.figures["sampled"]["arms"]) == {
        "plain again", "prediction", "skip:layers=1,law=sampled", "planted: typical"
    }  # fmt: skip
    for words in ("verdict: lossless", "same text", "equal bits", "largest deviation", "after Holm", "relative to:"):
        assert words in said
    assert not list(out.parent.glob("*.partial"))


def test_parts_can_be_chosen_and_a_sabotage_is_caught(capsys, model, prompts):
    argv = ("--workload", str(prompts), "-d", "ngram", "--parts", "exact")
    code, said, _ = lossless(capsys, model, *argv, "--json")
    assert (code, "identity" in json.loads(said)["figures"]) == (0, False)
    code, said, _ = lossless(capsys, model, *argv, "--sabotage", "odds")
    assert code == 1
    assert "verdict: broken: exact: verifier sabotaged:odds deviates by" in said


def test_a_rule_that_is_lossy_is_no_secret(capsys, model, prompts):
    argv = ("--workload", str(prompts), "-d", "prediction", "--verify", "typical", "--parts", "exact,sampled")
    code, said, _ = lossless(capsys, model, *argv)
    assert code == 1
    assert "verdict: broken: exact: verifier typical deviates" in said
    assert "prediction: another distribution" in said


def test_case_154_a_drafter_that_says_nothing_proves_nothing(capsys, model, prompts):
    """Failure case 154: all answers are equal, and the run does not call that lossless."""
    code, said, _ = lossless(capsys, model, "--workload", str(prompts), "-d", "none", "--parts", "identity")
    assert code == 1
    assert "verdict: unproven: identity: none: proves nothing, of 0 drafted tokens 0 stood" in said


def test_what_is_cut_short_goes_on(capsys, model, prompts, tmp_path, monkeypatch):
    out = tmp_path / "l.json"
    argv = ("--workload", str(prompts), "-d", "prediction", "--parts", "identity,exact", "--out", str(out))

    def broken_off(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("forerun.lab.lossless.study.measure_exact", broken_off)
        code, _, err = lossless(capsys, model, *argv)
    assert code == 130
    assert "6 units are kept" in err
    assert not out.exists()
    code, _, err = lossless(capsys, model, *argv)
    assert "6 units are measured already" in err
    assert code == 0
    assert load_result(out).bench["resumed_units"] == 6


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (("--parts", "identities"), "did you mean 'identity'"),
        (("--parts", ""), "at least one part"),
        (("--sabotage", "residuals"), "did you mean 'residual'"),
        (("--sabotage", "odds", "--parts", "rows"), "add it to --parts"),
        (("--batch", "0"), "batch must be"),
        (("--seed", "-1"), "seed must be a whole number from 0 up"),
        (("--answers", "1"), "answers must be"),
        (("--calibrate", "2"), "at least 5"),
        (("--tokens", "0"), "tokens must be"),
        (("--prompts", "0"), "--prompts"),
        (("--workload", "EMPTY"), "prompts"),
        (("--workload", "ODD"), "line"),
        (("--workload", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--out", "results"), ".json"),
        (("-d", "ngrams"), "did you mean 'ngram'"),
        (("-m", "random:tiny"), "no tokenizer"),
        (("--verify", "greedy", "-d", "ngram"), "leave the part sampled out"),
    ],
)
def test_wrong_input_is_one_line_and_exit_1(capsys, model, prompts, tmp_path, argv, hint):
    (tmp_path / "EMPTY").write_text("")
    (tmp_path / "ODD.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    files = {"EMPTY": str(tmp_path / "EMPTY"), "ODD": str(tmp_path / "ODD.jsonl")}
    argv = [files.get(word, word) for word in argv]
    if "--workload" not in argv:
        argv += ["--workload", str(prompts)]
    code, out, err = lossless(capsys, model, *argv)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert hint in err
