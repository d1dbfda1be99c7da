"""Typing to a model: the editor, the commands, interruptions, and words at the margin."""

import io
import os
import re
import sys

import pexpect
import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from forerun.cli import show, talk, typed
from forerun.cli.main import main
from forerun.cli.wrap import Wrapped


@pytest.fixture
def typing(monkeypatch, tmp_path):
    """What the editor makes of keys, with a history of its own."""
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path))

    def read(*keys):
        with create_pipe_input() as pipe:
            pipe.send_text("".join(keys))
            read = typed.editor(input=pipe, output=DummyOutput())
            found = []
            while (text := read()) is not None:
                found.append(text)
        return found

    return read


PASTE = "\x1b[200~{}\x1b[201~"
UP, LEFT, LEAVE = "\x1b[A", "\x1b[D", "\x04"


def test_241_a_paste_is_one_message_however_long(typing):
    long = "\n".join("w" * 70 for _ in range(100))
    assert typing(PASTE.format("one\ntwo\r\nthree"), "\r", PASTE.format(long), "\r", LEAVE) == ["one\ntwo\nthree", long]


def test_241_keys_edit_and_recall_across_sessions(typing, tmp_path):
    assert typing("helo", LEFT, "l", "\r", "a\x1b\rb", "\r", LEAVE) == ["hello", "a\nb"]
    assert typing(UP, UP, UP, "\r", LEAVE) == ["hello"]
    assert (tmp_path / "chat_history").stat().st_mode & 0o077 == 0


def test_241_ctrl_c_at_the_prompt_keeps_the_conversation(typing, capsys):
    assert typing("half\x03", "whole\r", LEAVE) == ["whole"]
    assert "is kept" in capsys.readouterr().err


def test_241_without_a_place_for_it_there_is_no_history(typing, tmp_path, capsys):
    (tmp_path / "chat_history").mkdir()
    os.rmdir(tmp_path / "chat_history")
    (tmp_path / "file").touch()
    os.environ["FORERUN_HOME"] = str(tmp_path / "file")
    assert typing("a\r", LEAVE) == ["a"]
    assert "no history" in capsys.readouterr().err


@pytest.fixture
def said(models, capsys, monkeypatch):
    """What the model was asked, message by message, and what was told on stderr."""

    def run(*lines, answers=None, terminal=False, args=()):
        asked, left = [], iter(answers or [])

        def stream(engine, prompt, params, colour, **more):
            asked.append(engine.words.decode(prompt))
            answer = next(left, None)
            if isinstance(answer, BaseException):
                raise answer
            return real(engine, prompt, params, colour, **more)

        real = show.stream
        monkeypatch.setattr(show, "stream", stream)
        stdin = io.StringIO("".join(f"{line}\n" for line in lines))
        stdin.isatty = lambda: terminal
        monkeypatch.setattr(sys, "stdin", stdin)
        status = main(["chat", "-m", str(models["folder"]), "--max-tokens", "2", *args])
        monkeypatch.setattr(show, "stream", real)
        return status, asked, capsys.readouterr().err

    return run


def test_241_commands_are_obeyed_and_not_told_to_the_model(said):
    _, asked, err = said(
        "/help", "/stats", "hi", "/stats", "/system be brief", "more", "/clear", "last", "/exit", "never"
    )
    assert len(asked) == 3
    assert [("hi" in text, "be brief" in text) for text in asked] == [(True, False), (True, True), (False, True)]
    assert err.count("tokens/s") == 1 or "target passes" in err
    for names in talk.COMMANDS:
        assert names in err


@pytest.mark.parametrize("line", ["/foo", "/hlep", "/", "/newer x", "/Exit"])
def test_241_unknown_commands_are_refused_with_the_list(said, line):
    _, asked, err = said(line, "/bye")
    assert asked == []
    assert "unknown command" in err
    assert "/help" in err


@pytest.mark.parametrize("line", [" /foo", "/usr/bin/python?", "//", "a /foo"])
def test_241_what_is_no_command_is_a_message(said, line):
    _, asked, err = said(line, "/bye")
    assert line.strip() in asked[0]
    assert err == ""


def test_241_an_answer_that_is_stopped_keeps_what_was_said(models, capsys, monkeypatch):
    import forerun

    with forerun.load(str(models["folder"])) as engine:
        steps = iter([None] * 5)
        step = engine.step

        def interrupted():
            if next(steps, 0) == 0:
                raise KeyboardInterrupt
            return step()

        monkeypatch.setattr(engine, "step", interrupted)
        prompt = engine.chat("hi")
        ask = {"logit_bias": {97: 100.0}, "max_tokens": 50}
        try:
            result = show.stream(engine, prompt, ask, False, keep=True)
        except KeyboardInterrupt:
            pytest.fail("what was said is lost")
        assert (result.finish_reason, result.text) == ("cancelled", "aaaaa")
        assert capsys.readouterr().out == "aaaaa\n"
        assert not engine.busy
        with pytest.raises(KeyboardInterrupt):
            show.stream(engine, prompt, ask, False)
        assert not engine.busy


def test_241_an_answer_that_is_stopped_before_a_word_is_taken_back(said):
    status, asked, _ = said("hi", "hi", "/bye", answers=[KeyboardInterrupt()], terminal=True)
    assert status == 0
    assert asked[0] == asked[1]
    assert said("hi", "hi", answers=[KeyboardInterrupt()])[0] == 130


def screen(text, width):
    """What a terminal of this width shows of a text."""
    lines, column = [""], 0
    for part in re.findall(r"\x1b\[[0-9]*[A-Za-z]|.", text, re.S):
        if part == "\n":
            lines.append("")
            column = 0
        elif part.endswith("D") and part[0] == "\x1b":
            column -= int(part[2:-1])
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:column]
        elif part[0] != "\x1b":
            lines[-1] = lines[-1][:column] + part
            column += 1
        assert column < width
    return lines


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_241_words_are_whole_at_the_margin(size):
    text = "The quick brown fox jumps over the lazy dog,\n\nand incomprehensibilities follow it home."
    wrap = Wrapped(20)
    shown = screen("".join(wrap(text[i : i + size]) for i in range(0, len(text), size)), 20)
    assert shown == [
        "The quick brown fox", "jumps over the lazy", "dog,", "", "and ", "incomprehensibiliti", "es follow it home.",
    ]  # fmt: skip


def test_241_wide_letters_and_colours_are_counted_as_shown():
    assert Wrapped(9)("好好好好好好") == "好好好好\n好好"
    assert Wrapped(9)("\x1b[32mab cdefgh\x1b[0m") == "\x1b[32mab cdefg\x1b[5D\x1b[K\n\x1b[32mcdefgh\x1b[0m"


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminal")
def test_241_in_a_terminal(models, tmp_path):
    """All of it at once: a paste of three lines, a command, Ctrl-C, and Ctrl-D."""
    env = {**os.environ, "FORERUN_HOME": str(tmp_path), "TERM": "xterm"}
    argv = ["-m", "forerun.cli.main", "chat", "-m", str(models["folder"]), "--max-tokens", "4", "--stats"]
    child = pexpect.spawn(sys.executable, argv, env=env, encoding="utf-8", timeout=60, dimensions=(40, 100))
    child.expect("Ctrl-D leaves")
    child.expect(">")
    child.send(PASTE.format("one\ntwo\nthree") + "\r")
    child.expect("prompt tokens reused")
    child.expect(">")
    child.send("/foo\r")
    child.expect("unknown command")
    child.expect(">")
    child.send("\x03")
    child.expect("is kept")
    child.expect(">")
    child.send(LEAVE)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert (tmp_path / "chat_history").read_text().count("+one\n+two\n+three\n") == 1


def test_266_an_interruption_while_modules_are_imported_is_quiet(monkeypatch, capsys):
    import builtins

    real = builtins.__import__

    def interrupted(name, *rest):
        if name.startswith("forerun.core"):
            raise KeyboardInterrupt
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    assert main(["drafters"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
