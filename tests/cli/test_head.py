"""`forerun head`: what it writes for other programs, and how that names its target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forerun.cli.head import verifier_of
from forerun.cli.main import main
from forerun.models.heads.formats import own
from forerun.testing.heads import random_config, random_head
from forerun.testing.tiny import Tiny, write_gguf
from forerun.weights.folder import open_checkpoint

SIZES = {"intermediate_size": 40, "heads": 4, "kv_heads": 2, "head_dim": 8}


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    """A head of each kind that names its target where it is written for others."""
    folder = tmp_path_factory.mktemp("heads")
    for kind in ("eagle3", "p-eagle", "medusa"):
        own.write(
            random_head(random_config(kind, 264, 32, 100, **({} if kind == "medusa" else SIZES)), 1), folder / kind
        )
    return folder


def written(heads, kind, form, model, out, *more):
    assert main(["head", str(heads / kind), "-m", str(model), "--export", form, "--out", str(out), *more]) == 0
    said = json.loads((out / "config.json").read_text())
    return said["speculators_config"]["verifier"] if form == "speculators" else said


@pytest.mark.parametrize(
    ("kind", "form"), [("eagle3", "speculators"), ("p-eagle", "speculators"), ("medusa", "medusa")]
)
def test_325_the_target_is_named_so_that_others_find_it(kind, form, heads, model, tmp_path, monkeypatch, capsys):
    key = "name_or_path" if form == "speculators" else "base_model_name_or_path"
    monkeypatch.chdir(model.parent)
    given = written(heads, kind, form, model.name, tmp_path / "given", "--verifier", "owner/name")
    found = written(heads, kind, form, model.name, tmp_path / "found")
    assert given[key] == "owner/name"
    assert found[key] == str(model.resolve())
    if form == "speculators":
        assert found["architectures"] == ["LlamaForCausalLM"]
    assert "warning" not in capsys.readouterr().err


def test_325_names_of_targets_from_elsewhere(model, tmp_path, heads, capsys):
    gguf = write_gguf(tmp_path / "tiny.gguf", Tiny(hidden=32, layers=3))
    checkpoint = open_checkpoint(model)
    assert verifier_of("smollm2", checkpoint) == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert verifier_of("owner/name", checkpoint) == "owner/name"
    command = ["head", str(heads / "eagle3"), "--export"]
    assert main([*command, "speculators", "-m", str(gguf), "--out", str(tmp_path / "o")]) == 0
    said = capsys.readouterr()
    assert "warning: the head names" in said.err
    assert "--verifier owner/name" in said.err
    assert main([*command, "own", "-m", str(model), "--out", str(tmp_path / "p"), "--verifier", "x"]) == 1
    assert "--verifier is for --export speculators and medusa" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["eagle3", "p-eagle"])
def test_325_speculators_own_loader_reads_it(kind, heads, model, tmp_path):
    speculators = pytest.importorskip("speculators", reason="the package speculators is not installed")
    written(heads, kind, "speculators", model, tmp_path / "out")
    loaded = speculators.SpeculatorModel.from_pretrained(str(tmp_path / "out"))
    assert Path(loaded.config.speculators_config.verifier.name_or_path) == model.resolve()
