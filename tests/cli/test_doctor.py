"""`forerun doctor`: what would be used here, and why nothing better."""

import json
import warnings

import pytest
import torch

from forerun.cli.main import main
from forerun.native import ext
from forerun.testing.tiny import Tiny, write_folder, write_gguf

needs_extension = pytest.mark.skipif(ext.extension() is None, reason=ext.why_not())


def run(capsys, *argv):
    assert main(list(argv)) == 0
    return capsys.readouterr().out


def test_doctor_says_what_would_be_used(capsys):
    found = json.loads(run(capsys, "doctor", "--json"))
    assert {"forerun", "torch", "cores usable", "runtime", "instruction set", "huge pages", "cache"} <= set(found)
    assert "runtime" in run(capsys, "doctor")


@needs_extension
def test_doctor_says_which_instruction_set_and_why_no_better(capsys, monkeypatch):
    found = json.loads(run(capsys, "doctor", "--json"))
    used = found["instruction set"].partition(":")[0]
    assert found[f"isa {used}"] == "used"
    assert list(ext.extension().isas()) == [key[4:] for key in found if key.startswith("isa ")]
    assert all(reason for key, reason in found.items() if key.startswith("isa "))
    assert "usable core" in found["native threads"]
    monkeypatch.setenv("FORERUN_ISA", "portable")
    found = json.loads(run(capsys, "doctor", "--json"))
    assert found["instruction set"].startswith("portable: FORERUN_ISA asks for it")
    monkeypatch.setenv("FORERUN_ISA", "mmx")
    assert "mmx" in json.loads(run(capsys, "doctor", "--json"))["instruction set"]


@needs_extension
def test_doctor_says_what_becomes_of_a_models_weights(capsys, tmp_path):
    model = write_gguf(tmp_path / "odd.gguf", Tiny(hidden=64, inner=96), quantization="Q5_0")
    found = json.loads(run(capsys, "doctor", "--json", "-m", str(model)))
    assert "int8 matrices" in found[f"weights of {model}"]
    assert any("Q5_0" in str(note) for key, note in found.items() if key.startswith("note "))


def test_doctor_says_why_there_is_no_extension(capsys, monkeypatch):
    monkeypatch.setattr(ext, "_load", lambda: (None, "no compiler"))
    found = json.loads(run(capsys, "doctor", "--json"))
    assert found["runtime"].startswith("torch: no compiler")
    assert found["instruction set"] == "none: no compiler"
    assert found["cores usable"] >= 1


@needs_extension
def test_a_warning_is_one_line_without_our_code_in_it(capsys, tmp_path):
    before = ext.threads(), torch.get_num_threads()
    model = str(write_folder(tmp_path / "m", Tiny()))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            assert main(["generate", "-m", model, "--threads", str(ext.cores() + 1), "--max-tokens", "1", "x"]) == 0
    finally:
        ext.set_threads(min(before[0], ext.cores()))
        torch.set_num_threads(before[1])
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "usable core" in line] == [line for line in said if line.startswith("warning: ")]
    assert not any(".py" in line for line in said)
