"""The study from Python: files that name the call, and know another run when they see one."""

import json

import pytest

from forerun.lab import paired
from forerun.lab.run import load_result
from forerun.lab.study import Study


@pytest.fixture(autouse=True)
def quick_reader(monkeypatch):
    for module in ("bench", "bandwidth"):
        monkeypatch.setattr(f"forerun.lab.{module}.reader", lambda: lambda nbytes, seconds: 2e10)


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in ("one two one two", "a b a b")))
    return path


def made(models, prompts, **options):
    return Study(str(models["folder"]), prompts, drafters=["ngram"], tokens=6, runtime="torch", threads=1, **options)


def test_the_command_is_the_call_that_was_made(models, prompts, tmp_path):
    study = made(models, prompts, results=tmp_path / "results")
    shown = study.domains()
    found = load_result(tmp_path / "results" / "domains.json")
    first = (
        f"Study({str(models['folder'])!r}, {str(prompts)!r}, drafters=['ngram'], tokens=6, runtime='torch', threads=1)"
    )
    assert found.bench["command"] == f"{first}.domains()"
    assert shown.figures == found.figures
    study.curve(rows=(1, 2), context=16, repeats=2)
    command = load_result(tmp_path / "results" / "curve.json").bench["command"]
    assert command == f"{first}.curve(rows=[1, 2], context=16, repeats=2)"
    again = eval(command, {"Study": lambda *args, **options: Again(args, options)})
    assert again == ((str(models["folder"]), str(prompts)), [1, 2], 16, 2)


class Again:
    """What a command that is read back calls."""

    def __init__(self, args, options):
        self.args, self.options = args, options

    def curve(self, rows, context, repeats):
        return self.args, rows, context, repeats


def test_an_interrupted_study_goes_on_and_another_one_says_what_differs(models, prompts, tmp_path, monkeypatch, capsys):
    real, count = paired.Session.unit, iter(range(100))

    def unit(self, *args):
        if next(count) == 1:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(paired.Session, "unit", unit)
    with pytest.raises(KeyboardInterrupt):
        made(models, prompts, results=tmp_path).domains()
    prompts.write_text(prompts.read_text().replace("a b", "b c"))
    other = made(models, prompts, results=tmp_path).domains()
    assert other.result["bench"]["resumed_units"] == 0
    assert "prompt_digests" in capsys.readouterr().err
    (tmp_path / "domains.json.partial.old").replace(tmp_path / "domains.json.partial")
    prompts.write_text(prompts.read_text().replace("b c", "a b"))
    same = made(models, prompts, results=tmp_path).domains()
    assert same.result["bench"]["resumed_units"] == 1
    ask = same.result["bench"]["ask"]
    assert {"commit", "dirty", "forerun", "processor", "drafter_files"} <= set(ask)
