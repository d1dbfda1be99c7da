"""Standard streams that are closed, full or of another encoding; interruptions; what stands on standard input."""

import io
import json
import os
import subprocess
import sys

import pytest

from forerun.cli.compare import Outcome
from forerun.cli.main import main
from forerun.core.seq import SeqStats, Token
from forerun.engine.results import Choice, Result, Usage


def shell(command, **options):
    """Run a shell line in which $F is the program; standard input is empty unless given."""
    env = {**os.environ, "F": f"{sys.executable} -m forerun.cli.main", **options.pop("env", {})}
    env.pop("PYTHONUNBUFFERED", None)
    options = {"input": b"", **options}
    return subprocess.run(command, shell=True, capture_output=True, env=env, check=False, **options)


@pytest.mark.parametrize("command", ["generate --json hi", "generate hi", "chat"])
@pytest.mark.parametrize("output", [">&-", pytest.param(">/dev/full", marks=pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="this system has no /dev/full"))])  # fmt: skip
def test_output_that_cannot_be_written_is_one_line(models, command, output):
    done = shell(f"$F {command} -m {models['folder']} --max-tokens 3 {output}", input=b"hi\n")
    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: ")
    assert done.stderr.count(b"\n") == 1


def test_no_standard_input_is_an_empty_one(models):
    done = shell(f"$F chat -m {models['folder']} <&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_standard_input_that_is_no_text_is_one_line(models):
    done = shell(f"$F chat -m {models['folder']}", input=b"\xff\xfe\n", env={"PYTHONIOENCODING": "utf-8:strict"})
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"not UTF-8" in done.stderr


def test_a_character_that_the_encoding_has_not_is_escaped(models):
    text = f"$F generate --raw -m {models['folder']} --temperature 9 --seed 1 --max-tokens 40 hi"
    done = shell(text, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert b"\\x" in done.stdout or b"\\u" in done.stdout


def test_the_prompt_is_read_from_standard_input(models, capsys, monkeypatch):
    found = []
    for argv in (["abc"], [], ["-"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO("abc"))
        assert main(["generate", "-m", str(models["folder"]), "--json", "--max-tokens", "2", *argv]) == 0
        found.append(json.loads(capsys.readouterr().out)["usage"])
    assert found[0] == found[1] == found[2]


def test_without_a_prompt_a_terminal_is_not_waited_for(models, capsys, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    assert main(["generate", "-m", str(models["folder"])]) == 1
    assert "no prompt" in capsys.readouterr().err


def test_instructions_stand_before_the_text(models, capsys):
    counts = []
    for extra in ([], ["--system", "be brief"]):
        main(["generate", "-m", str(models["folder"]), "--json", "--max-tokens", "2", *extra, "hi"])
        counts.append(json.loads(capsys.readouterr().out)["usage"]["prompt_tokens"])
    assert counts[1] - counts[0] >= len("be brief")


@pytest.mark.parametrize(("terminal", "status", "turns"), [(True, 0, 2), (False, 130, 1)])
def test_ctrl_c_ends_an_answer_and_not_the_conversation(models, capsys, monkeypatch, terminal, status, turns):
    from forerun.cli import show

    asked = []

    def interrupted(engine, prompt, params, colour):
        asked.append(len(prompt))
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "stream", interrupted)
    lines = io.StringIO("hi\nhi\n/bye\n")
    lines.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stdin", lines)
    assert main(["chat", "-m", str(models["folder"])]) == status
    assert len(asked) == turns
    assert len(set(asked)) == 1  # the interrupted turn is no part of the next
    assert "interrupted" in capsys.readouterr().err


def test_answers_of_one_step_have_no_speed_up():
    """All tokens came at once: there is no time per token to divide by."""

    def result(end):
        stats = SeqStats(emitted=3, first_tokens=3, first_s=1.0, ended_s=end)
        return Result(0, (Choice(0, "", (Token(1),) * 3, "length", stats),), Usage(1, 3))

    outcome = Outcome([result(2.0)], [result(1.0)])
    assert outcome.speedups() == []
    assert outcome.summary()["speedup"] is None


@pytest.mark.parametrize("prompts", ["0", "-1", "99"])
def test_demo_has_so_many_prompts(models, capsys, prompts):
    assert main(["demo", "-m", str(models["folder"]), "--prompts", prompts]) == 1
    assert "from 1 to" in capsys.readouterr().err
