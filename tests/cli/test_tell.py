"""What commands say at their end: text for people, JSON alone where it is asked for."""

import io
import json
import sys

import pytest

from forerun.cli.main import COMMANDS, OF_SEVERAL, main, parser
from forerun.lab.run import load_result

ENGINE = ("--runtime", "torch", "--threads", "1")


@pytest.fixture(autouse=True)
def quick_reader(monkeypatch):
    """Nothing is measured of the memory."""
    for module in ("bench", "bandwidth"):
        monkeypatch.setattr(f"forerun.lab.{module}.reader", lambda: lambda nbytes, seconds: 2e10)


@pytest.fixture
def commands(models, tmp_path):
    """Calls of every kind: what streams, what is listed, what is measured, what is written."""
    model, prompts, text = str(models["folder"]), tmp_path / "mine.jsonl", tmp_path / "text.md"
    prompts.write_text("\n".join(json.dumps({"text": text}) for text in ("a b a b", "one two one two")))
    text.write_text("no claim\n")
    measured = ("-m", model, *ENGINE, "--tokens", "4")
    return {
        "generate": ("generate", "-m", model, *ENGINE, "--max-tokens", "4", "--stats", "hi"),
        "drafters": ("drafters",),
        "doctor": ("doctor",),
        "pull": ("pull", model),
        "domains": ("lab", "domains", *measured, "--workload", str(prompts), "-d", "ngram"),
        "curve": ("lab", "curve", "-m", model, *ENGINE, "--rows", "1,2", "--repeats", "2", "--context", "8"),
        "trace": ("lab", "trace", "-m", model, *ENGINE, "--max-tokens", "4", "-o", str(tmp_path / "t.html"), "a b a b"),
        "check": ("lab", "check", str(text), "--results", str(tmp_path)),
    }


@pytest.mark.parametrize("name", ["generate", "drafters", "doctor", "pull", "domains", "curve", "trace", "check"])
def test_245_json_stands_alone_where_it_is_asked_for_and_nowhere_else(commands, name, capsys):
    found = []
    for more in ((), ("--json",)):
        assert main([*commands[name], *more]) == 0
        found.append(capsys.readouterr().out)
    said, asked = found
    assert isinstance(json.loads(asked), dict)
    assert asked.count("\n") == 1, "one line"
    assert said
    assert not any(line.startswith("{") for line in said.splitlines()), "people did not ask for JSON"


def test_245_the_object_is_what_the_file_holds(commands, tmp_path, capsys):
    out = tmp_path / "curve.json"
    assert main([*commands["curve"], "--json", "--out", str(out)]) == 0
    said, file = capsys.readouterr(), load_result(out)
    assert json.loads(said.out) == {"experiment": "curve", "answers": file.answers, "figures": file.figures}
    assert f"written to {out}" in said.err
    assert not file.bench["ask"].keys() & {"json", "record"}, "how a run is told does not make it another one"


def test_245_every_command_takes_the_option_or_has_nothing_to_tell():
    top = parser()
    (commands,) = (action.choices for action in top._actions if action.dest == "command")
    (experiments,) = (action.choices for action in commands["lab"]._actions if action.dest == "experiment")
    for name, command in {**commands, **experiments}.items():
        takes = any("--json" in action.option_strings for action in command._actions)
        assert takes == (name not in OF_SEVERAL), name
    assert set(OF_SEVERAL) <= set(COMMANDS)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_245_json_is_whole_in_the_encoding_of_the_terminal(models, monkeypatch, encoding):
    """A letter that the terminal lacks is an escape of JSON, not of Python."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    assert main(["drafters", "--json"]) == 0
    monkeypatch.setattr("forerun.drafters.specs.describe_drafters", lambda: {"ж…": {"summary": "é", "options": []}})
    sys.stdout.flush()
    raw.truncate(0), raw.seek(0)
    assert main(["drafters", "--json"]) == 0
    assert json.loads(raw.getvalue().decode(encoding)) == {"ж…": {"summary": "é", "options": []}}


def test_245_a_failure_leaves_standard_output_empty(models, capsys):
    assert main(["generate", "-m", str(models["folder"]), "--temperature", "-1", "--json", "x"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Error: ")
