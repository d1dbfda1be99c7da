"""Standard streams that are closed, full or of another encoding; interruptions; what stands on standard input."""

import io
import json
import os
import subprocess
import sys

import pytest

from forerun.cli.compare import Outcome
from forerun.cli.main import main, parser
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


def asked(models, capsys, monkeypatch, stdin, *argv):
    """Prompt tokens of a generate with this on standard input."""
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["generate", "-m", str(models["folder"]), "--json", "--max-tokens", "2", *argv]) == 0
    return json.loads(capsys.readouterr().out)["usage"]["prompt_tokens"]


def test_the_prompt_is_read_from_standard_input(models, capsys, monkeypatch):
    found = {
        asked(models, capsys, monkeypatch, io.StringIO(piped), *argv)
        for piped, argv in (("", ["abc"]), ("\n", ["abc"]), ("abc", []), ("abc", ["-"]))
    }
    assert len(found) == 1


@pytest.mark.parametrize("mode", [[], ["--raw"]])
def test_248_a_prompt_and_what_is_piped_in_are_both_read(models, capsys, monkeypatch, mode):
    both = asked(models, capsys, monkeypatch, io.StringIO("file\n"), *mode, "Sum up")
    assert both == asked(models, capsys, monkeypatch, io.StringIO(""), *mode, "Sum up\n\nfile\n")
    assert both == asked(models, capsys, monkeypatch, io.StringIO("Sum up\n\nfile\n"), *mode, "-")


@pytest.fixture
def pipe():
    """A real pipe as standard input, and its other end."""
    out, into = os.pipe()
    with os.fdopen(out) as reads, os.fdopen(into, "w") as writes:
        yield reads, writes


def test_248_a_pipe_that_nobody_writes_to_is_not_waited_for_for_ever(models, capsys, monkeypatch, pipe):
    from forerun.cli import common

    monkeypatch.setattr(common, "WAIT_S", 0.05)
    monkeypatch.setattr(sys, "stdin", pipe[0])
    assert main(["generate", "-m", str(models["folder"]), "--max-tokens", "2", "hi"]) == 0
    assert "nothing came on standard input in 0.05 s" in capsys.readouterr().err


@pytest.mark.parametrize("written", ["", "some text"])
def test_248_a_pipe_is_read_to_its_end(monkeypatch, pipe, written):
    from forerun.cli.common import piped

    pipe[1].write(written)
    pipe[1].close()
    monkeypatch.setattr(sys, "stdin", pipe[0])
    assert piped() == written


def test_248_where_there_is_no_standard_input_the_prompt_is_all(models):
    for closed in ("<&-", "</dev/null"):
        done = shell(f"$F generate --max-tokens 2 -m {models['folder']} hi {closed}")
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (r"\n", "\n"), (r"\n\n", "\n\n"), (r"a\tb\r", "a\tb\r"), (r"\\n", r"\n"), (r"\\\n", "\\\n"),
        (r"\u0041\x42", "AB"),
        (r"\U0001F600", "😀"), ("é\n", "é\n"), ("plain", "plain"), (r"\\end{x}", r"\end{x}"),
    ],
)  # fmt: skip
def test_210_escapes_mean_what_they_mean_in_python(given, meant):
    args = parser().parse_args(["generate", "--stop", given, "--prefill", given, "x"])
    assert (args.stop, args.prefill) == ([meant], meant)


@pytest.mark.parametrize("given", [r"\d", r"\end", "\\", r"\u12", r"\ud800", r"\U00110000", r"\x4"])
def test_210_other_backslashes_are_refused_with_a_hint(capsys, given):
    with pytest.raises(SystemExit):
        main(["generate", "--stop", given, "x"])
    assert r"write \\ for a backslash" in capsys.readouterr().err


def test_210_a_stop_text_given_on_a_shell_ends_the_answer(models):
    done = shell(f"$F generate -m {models['folder']} --raw --prefill x --stop '\\n' hi")
    assert done.returncode == 1
    assert b"--prefill speaks through the chat template" in done.stderr


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
