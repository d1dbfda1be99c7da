"""`forerun train` as a new user meets it: budgets, finished heads, interruptions, progress, cards, disks."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
from pathlib import Path

import pytest
import torch
from training_words import QUICK, SMALL

from forerun.cli import progress
from forerun.cli.main import main
from forerun.models.heads.formats import own
from forerun.train import disk, trainer
from forerun.train.corpus import Corpus
from forerun.train.halting import Halt


def words(model, corpus, out, *more, kind="eagle3"):
    return ["train", kind, "-m", str(model), "--corpus", str(corpus), "--out", str(out), *SMALL, *QUICK, *more]


def digests(path: Path) -> dict[str, str]:
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in path.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def head(model, corpus, tmp_path_factory):
    """A finished head."""
    out = tmp_path_factory.mktemp("heads") / "eagle3"
    assert main(words(model, corpus, out)) == 0
    return out


def test_322_a_finished_head_is_never_written_over_without_a_word(head, model, corpus, capsys):
    before = digests(head)
    assert main(words(model, corpus, head)) == 0
    assert "done already" in capsys.readouterr().out
    for more in (["--rate", "0.001"], ["--seed", "1"], ["--from", str(head)]):
        assert main(words(model, corpus, head, *more)) == 1
        assert "holds a head already (eagle3, tau" in capsys.readouterr().err
    assert main(words(model, corpus, head, kind="medusa")) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert digests(head) == before


@pytest.mark.parametrize("name", ["README.md", "config.json", "model.safetensors", "medusa"])
def test_322_neither_is_a_file_of_the_user_s_own(name, model, corpus, tmp_path, capsys):
    out = tmp_path / "mine"
    out.mkdir()
    (out / name).write_text("mine")
    assert main(words(model, corpus, out)) == 1
    assert f"holds {name} already" in capsys.readouterr().err
    assert (out / name).read_text() == "mine"
    assert [path.name for path in out.iterdir()] == [name]


def test_322_overwriting_leaves_the_new_result_alone(model, corpus, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(words(model, corpus, out)) == 0
    (out / "model.safetensors").write_text("of an export")
    assert main(words(model, corpus, out, "--overwrite", kind="medusa")) == 0
    assert own.read(out).kind == "medusa"
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "head.json",
        "head.safetensors",
        "held_out.jsonl",
    ]


def interrupt(monkeypatch, module, name, at, number=signal.SIGTERM):
    """Send a signal to this process in the `at`-th call of a function."""
    real, calls = getattr(module, name), []

    def called(*args, **kwargs):
        calls.append(1)
        if len(calls) == at:
            os.kill(os.getpid(), number)
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, called)


PHASES = {
    "answers": ("forerun.train.gather", "_Gathering._hear", 20),
    "features": ("forerun.train.kinds", "draft_words", 1),
    "training": ("forerun.train.trainer", "_step", 3),
    "measuring": ("forerun.train.tau", "answers", 1),
    "files": ("forerun.train.run", "_write", 1),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_323_a_signal_in_any_phase_saves_and_the_same_command_ends_the_same(
    phase, number, head, model, data, tmp_path, capsys, monkeypatch
):
    """Of a run that makes its own corpus: bit for bit the head of one that was not interrupted."""
    import importlib

    place, name, at = PHASES[phase]
    holder = importlib.import_module(place)
    *path, name = name.split(".")
    for part in path:
        holder = getattr(holder, part)
    out = tmp_path / "rest"
    command = ["train", "eagle3", "-m", str(model), "--out", str(out), *SMALL, *QUICK, *data]
    with monkeypatch.context() as patch:
        interrupt(patch, holder, name, at, number)
        status = main(command)
    said = capsys.readouterr().err
    if phase == "files":  # short, and not to be left half done
        assert status == 0
    else:
        assert status == 128 + number
        assert "the same command goes on from there" in said
        assert not (out / "head.json").exists()
        if phase != "features":
            assert (out / "run.json").exists()
        assert main(command) == 0
        assert "going on with the run" in capsys.readouterr().err or phase == "features"
    whole, rest = own.read(head), own.read(out)
    for tensor in whole.tensors:
        assert torch.equal(whole.floats(tensor), rest.floats(tensor)), tensor
    assert not (out / "run.json").exists()
    assert not (out / "training.pt").exists()


def test_323_a_second_signal_does_not_wait():
    halt = Halt()
    with halt.listening(), halt.careful():
        os.kill(os.getpid(), signal.SIGINT)
        assert halt.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with Halt().listening(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.fixture
def stopped(model, corpus, tmp_path, monkeypatch, capsys):
    """A run that was interrupted while it trained."""
    out = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        interrupt(patch, trainer, "_step", 3)
        assert main(words(model, corpus, out)) == 128 + signal.SIGTERM
    capsys.readouterr()
    return out


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--unroll", "3"], "with no --unroll; this one has --unroll 3"),
        (["--rate", "0.001"], "--rate 0.003; this one has --rate 0.001"),
        (["--steps", "5"], "--steps 4; this one has --steps 5"),
        (["--batch", "128"], "--batch 256"),
        (["--seed", "2"], "--seed 0"),
        (["--draft-vocab", "120"], "--draft-vocab 150"),
        (["--loss", "tv"], "no --loss"),
        (["--measures", "2"], "--measures 1"),
        (["--tokens", "500"], "--tokens 900"),
        (["--no-own-end"], "--own-end"),
        (["--domain", "chat"], "--domain"),
        (["--minutes", "2"], "no --minutes"),
    ],
)
def test_324_a_run_is_gone_on_with_as_it_was_begun_or_refused_by_name(more, told, stopped, model, corpus, capsys):
    assert main(words(model, corpus, stopped, *more)) == 1
    said = capsys.readouterr().err
    assert "holds a run that is not finished" in said
    assert told in said
    assert len(said.strip().splitlines()) == 1


def test_324_another_kind_and_other_data_are_refused_too(stopped, model, corpus, tmp_path, capsys):
    assert main(words(model, corpus, stopped, kind="mtp")) == 1
    assert "with kind eagle3; this one has kind mtp" in capsys.readouterr().err
    text = tmp_path / "other.txt"
    text.write_text("one\ntwo")
    assert main(words(model, corpus, stopped, "--data", str(text))) == 1
    assert "--data" in capsys.readouterr().err
    assert main(words(model, corpus, stopped, "--seed", "2", "--overwrite")) == 0
    assert json.loads((stopped / "head.json").read_text())["card"]["seed"] == 2


def test_327_a_corpus_that_is_handed_in_is_only_read(model, corpus, tmp_path, capsys):
    before = digests(corpus)
    assert main(words(model, corpus, tmp_path / "more", "--tokens", "5000")) == 0
    assert "fewer than --tokens 5000, and stays as it is" in capsys.readouterr().err
    assert main(words(model, corpus, tmp_path / "less", "--tokens", "300")) == 0
    assert main(words(model, tmp_path / "new", tmp_path / "own", "--also", str(corpus), "--domain", "chat")) == 0
    assert digests(corpus) == before
    card = json.loads((tmp_path / "less" / "head.json").read_text())["card"]
    assert card["corpus"]["learnt"] < 400
    assert Corpus(tmp_path / "new").learnt >= 900


def test_327_a_corpus_grows_only_by_its_own_command(model, corpus, data, tmp_path, capsys):
    common = ["train", "corpus", "-m", str(model), "--out", str(tmp_path / "c"), *SMALL, *data]
    assert main([*common, "--tokens", "200"]) == 0
    first = Corpus(tmp_path / "c").learnt
    assert main([*common, "--tokens", "200"]) == 0
    assert "done already" in capsys.readouterr().out
    assert Corpus(tmp_path / "c").learnt == first
    assert main([*common, "--tokens", "500"]) == 0
    assert Corpus(tmp_path / "c").learnt >= 500
    assert main([*common, "--tokens", "500", "--seed", "3"]) == 1
    assert "seed 0, this run would make one with 3" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [False, True])
def test_328_every_phase_has_a_total_and_its_time_and_the_end_says_what_there_is(
    terminal, model, data, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(progress, "LINE_EACH_S", 0.0)
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: terminal, raising=False)
    out = tmp_path / "o"
    assert main(["train", "medusa", "-m", str(model), "--out", str(out), *SMALL, *QUICK, *data]) == 0
    said = capsys.readouterr()
    for phase in ("answers", "features", "training", "measuring"):
        assert f"{phase}: " in said.err
        assert "100%" in said.err.split(f"{phase}: ")[-1]
    assert "training: 25%, 1/4 steps, 0:0" in said.err or terminal
    assert (("\r" in said.err) or ("\x1b" in said.err)) == terminal, "no control codes where it is a file"
    made, tau, next_command = said.out.splitlines()
    assert made.startswith(f"{out}: medusa head of")
    assert tau.startswith("tau ")
    assert "held-out prompts" in tau
    assert next_command == f"next: forerun generate -m {model} -d {out} 'Why do leaves fall?'"


def test_328_a_resumed_run_says_from_where(stopped, model, corpus, capsys):
    assert main(words(model, corpus, stopped)) == 0
    assert "going on from step 3" in capsys.readouterr().err


def test_329_the_card_s_tau_is_that_of_the_lab(head, model, capsys):
    """The same prompts, tree and definition; the command stands on the card."""
    import shlex

    card = json.loads((head / "head.json").read_text())["card"]
    assert card["measure"] in (head / "README.md").read_text()
    assert main([*shlex.split(card["measure"])[1:], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["figures"]["workloads"]["held_out"]["arms"]
    assert found[f"eagle3:path={head}"]["tau"] == pytest.approx(card["tau"]["all"], abs=1e-4)


def test_329_the_card_tells_all_of_it_in_words(head, model, corpus, tmp_path):
    out = tmp_path / "second"
    assert main(words(model, corpus, out, "--from", str(head))) == 0
    text = (out / "README.md").read_text()
    card = json.loads((out / "head.json").read_text())["card"]
    assert text.startswith("# An eagle3 head for")
    for said in (
        "Asked: 80 conversations of own.txt.",
        card["shape"],
        "the target in auto",
        f"**Begun from** {head} (eagle3), which has a tau of",
        "96 tokens of each",
    ):
        assert said in " ".join(text.split()), said
    before = json.loads((head / "head.json").read_text())["card"]
    assert card["begun_from"]["tau_here"] == pytest.approx(before["tau"]["all"], abs=1e-9)


def test_329_what_comes_of_a_head_is_never_worse_than_that_head(head, model, corpus, tmp_path, capsys):
    out = tmp_path / "spoilt"
    assert main(words(model, corpus, out, "--from", str(head), "--rate", "0.9")) == 0
    assert "nothing that was learnt is better: this is that head as it was" in capsys.readouterr().out
    card = json.loads((out / "head.json").read_text())["card"]
    assert card["tau"]["all"] == card["begun_from"]["tau_here"]
    before, after = own.read(head), own.read(out)
    assert all(torch.equal(before.floats(name), after.floats(name)) for name in before.tensors)


def test_329_the_time_on_the_card_is_that_of_all_sessions(stopped, model, corpus):
    account = json.loads((stopped / "run.json").read_text())
    account["seconds"]["training"] += 100.0
    (stopped / "run.json").write_text(json.dumps(account))
    assert main(words(model, corpus, stopped)) == 0
    card = json.loads((stopped / "head.json").read_text())["card"]
    assert 100 < card["seconds"]["training"] < card["seconds"]["all"] < 200
    assert card["sessions"] == 2
    assert "in 2 sessions" in (stopped / "README.md").read_text()


@pytest.mark.parametrize("minutes", [0.1, 0.15])
def test_321_minutes_are_held(minutes, model, data, tmp_path):
    from time import perf_counter

    at = perf_counter()
    out = tmp_path / "o"
    command = ["train", "eagle3", "-m", str(model), "--out", str(out), *SMALL, *data, "--minutes", str(minutes)]
    assert main(command) == 0
    assert perf_counter() - at < minutes * 60 + 2


def test_321_an_interrupted_budget_is_not_begun_anew(model, corpus, tmp_path, monkeypatch):
    out = tmp_path / "o"
    command = [word for word in words(model, corpus, out, "--minutes", "1") if word not in ("--steps", "4")]
    with monkeypatch.context() as patch:
        interrupt(patch, trainer, "_step", 3)
        assert main(command) == 128 + signal.SIGTERM
    account = json.loads((out / "run.json").read_text())
    account["seconds"]["training"] += 58.0
    (out / "run.json").write_text(json.dumps(account))
    assert main(command) == 0
    card = json.loads((out / "head.json").read_text())["card"]
    assert 58 < card["seconds"]["all"] < 66


def test_330_room_is_looked_at_first_and_what_is_saved_on_the_way_is_announced(
    model, corpus, tmp_path, capsys, monkeypatch
):
    assert main(words(model, corpus, tmp_path / "o")) == 0
    assert "saved in" in (said := capsys.readouterr().err)
    assert "kB, removed at the end)" in said or "MB, removed at the end)" in said
    monkeypatch.setattr(disk, "free", lambda path: 1000)
    assert main(words(model, tmp_path / "c", tmp_path / "p", "--domain", "chat")) == 1
    assert "needs about" in (said := capsys.readouterr().err)
    assert "(answers" in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "c").exists()
    assert main(words(model, corpus, tmp_path / "q")) == 1
    assert "(training" in capsys.readouterr().err.splitlines()[-1]


FULL = OSError(errno.ENOSPC, "No space left on device")
TORCH = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0\nframe #0: c10")


@pytest.mark.parametrize(
    ("where", "name", "error"),
    [
        ("forerun.train.corpus", "save_file", FULL),
        ("forerun.train.trainer", "torch.save", TORCH),
        ("forerun.train.run", "_write", FULL),
    ],
)
def test_330_a_full_disk_is_one_line_and_what_was_saved_stays(
    where, name, error, model, data, tmp_path, capsys, monkeypatch
):
    import importlib

    def full(*args, **kwargs):
        if isinstance(error, RuntimeError):
            monkeypatch.setattr(disk, "free", lambda path: 0)
        raise error

    out = tmp_path / "o"
    command = ["train", "medusa", "-m", str(model), "--out", str(out), *SMALL, *QUICK, *data]
    with monkeypatch.context() as patch:
        holder = importlib.import_module(where)
        *path, last = name.split(".")
        for part in path:
            holder = getattr(holder, part)
        patch.setattr(holder, last, full)
        assert main(command) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert "the disk is full; make room and run the same command again" in last
    monkeypatch.undo()
    assert not list(out.rglob("*.part"))
    assert not (out / ".writing").exists()
    assert main(command) == 0


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_331_a_folder_that_cannot_be_written_is_called_that(code, model, corpus, tmp_path, capsys, monkeypatch):
    def refused(self, *args, **kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", refused)
    assert main(words(model, corpus, tmp_path / "o")) == 1
    said = capsys.readouterr().err
    assert os.strerror(code).lower() in said
    assert "room" not in said


def test_331_a_file_in_the_place_of_a_folder(model, corpus, tmp_path, capsys):
    (tmp_path / "o").write_text("x")
    assert main(words(model, corpus, tmp_path / "o")) == 1
    assert "o is a file: --out names a folder" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["heads/nope", "./nope", "/nope/eagle3", "heads/nope:depth=3"])
def test_331_a_head_s_folder_that_is_not_there_is_called_that(name, model, capsys):
    assert main(["generate", "-m", str(model), "-d", name, "x"]) == 1
    said = capsys.readouterr().err
    assert f"folder {name.partition(':')[0]} does not exist" in said
    assert "unknown drafter" not in said


def test_331_a_shipped_head_has_the_same_name_everywhere(model, head, monkeypatch):
    """`--from eagle3` and `forerun head eagle3` find what `-d eagle3` does."""
    from forerun import heads
    from forerun.models.heads.opening import Fit

    monkeypatch.setattr(heads, "shipped", lambda: {("eagle3", "mark"): head})
    fit = Fit("m", 32, 264, 3, "mark")
    assert heads.head_folder("eagle3", fit) == heads.folder_of("eagle3", "", fit) == head
    assert heads.head_folder(f"eagle3:path={head}", fit) == head
    assert heads.head_folder(str(head), fit) == head


def test_331_an_export_is_not_laid_beside_another_head(head, model, tmp_path, capsys):
    out = tmp_path / "export"
    command = ["head", str(head), "-m", str(model), "--export", "own", "--out", str(out)]
    assert main(command) == 0
    for form in ("own", "safeai", "speculators"):
        assert main([*command[:5], form, *command[6:]]) == 1
        assert "holds head.json already: give another --out, or --overwrite" in capsys.readouterr().err
    assert main([*command[:5], "safeai", *command[6:], "--overwrite"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]


def test_331_an_own_folder_s_account_is_one_line_where_it_is_broken(stopped, model, corpus, capsys):
    (stopped / "run.json").write_text("{")
    assert main(words(model, corpus, stopped)) == 1
    assert "run.json cannot be read" in capsys.readouterr().err


def test_326_own_conversations_arrive_whole(model, tmp_path, capsys):
    """Two turns and a system message each: all are in the corpus, and what has no room is counted."""
    path = tmp_path / "mine.jsonl"
    lines = [
        {"messages": [{"role": "system", "content": f"Be {n}."}, {"role": "user", "content": f"first {n}"},
                      {"role": "user", "content": f"second {n}"}]}
        for n in range(20)
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, lines)))
    out = tmp_path / "c"
    assert main(["train", "corpus", "-m", str(model), "--out", str(out), *SMALL, "--data", str(path)]) == 0
    capsys.readouterr()
    from forerun.text.from_folder import from_folder

    corpus, words = Corpus(out), from_folder(model)
    texts = [words.decode(corpus.words(place)[0].tolist()) for place in corpus]
    for number in range(20):
        assert any(f"Be {number}." in text and f"second {number}" in text for text in texts)
    assert len(texts) == 20
    path.write_text("\n".join(map(json.dumps, [*lines[:3], {"text": "a long one " * 90}])))
    assert main(["train", "corpus", "-m", str(model), "--out", str(tmp_path / "d"), *SMALL, "--data", str(path)]) == 0
    assert "left out: 1 conversations without an answer" in capsys.readouterr().err


def test_321_326_options_are_not_ignored(model, data, tmp_path, capsys):
    base = ["train", "eagle3", "-m", str(model), "--out", str(tmp_path / "o")]
    assert main([*base, *data, "--domain", "code"]) == 1
    assert "--domain is for prompts that the target writes itself" in capsys.readouterr().err
    assert main([*base, "--device", "cuda", "--weights", "int8"]) == 1
    assert "--weights is of the native runtime" in capsys.readouterr().err
