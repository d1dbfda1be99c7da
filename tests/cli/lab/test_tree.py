"""`forerun lab tree` on a tiny model with a random head."""

import json

import pytest

from forerun.cli.main import main
from forerun.lab.run import load_result
from forerun.models.heads.formats import own
from forerun.testing.heads import random_config, random_head
from forerun.trees.named import shape_of


@pytest.fixture
def command(tmp_path, models, prompts, monkeypatch):
    monkeypatch.setattr("forerun.lab.tree.REPEATS", 2)
    monkeypatch.setattr("forerun.lab.tree.CONTEXT", 16)
    monkeypatch.setattr("forerun.lab.tree.PROBE_NODES", 12)
    monkeypatch.setattr("forerun.lab.tree.FEWEST", 1)
    config = random_config("eagle3", 264, 32, 100, intermediate_size=40, heads=4, kv_heads=2, head_dim=8)
    own.write(random_head(config, 1), tmp_path / "head")
    base = ["lab", "tree", "-m", str(models["folder"]), "--threads", "1", "--tokens", "8", "--ignore-eos"]
    return [*base, "--workload", str(prompts), "--depth", "2", "--rows", "6", "-d", f"eagle3:path={tmp_path / 'head'}"]


def test_chances_costs_and_a_tree_that_the_drafter_takes(command, tmp_path, capsys, monkeypatch):
    out, tree = tmp_path / "results" / "tree.json", tmp_path / "here.json"
    monkeypatch.setattr("forerun.lab.tree._draft_seconds", lambda *args: [1e-9, 2e-9])
    assert main([*command, "--out", str(out), "--tree", str(tree)]) == 0
    said = capsys.readouterr().out
    found = load_result(out).figures
    assert list(found["target_ms"]) == ["1", "2", "3", "4", "5", "6"]
    assert all(0 <= value <= 1 for row in found["chances"] for value in row)
    assert "how often each rank stands" in said
    paths = json.loads(tree.read_text())
    assert paths == found["best"]["paths"]
    assert len(shape_of(str(tree))) == found["best"]["nodes"]
    (clock,) = found["workloads"].values()
    assert clock["prompts"] == 2
    for arm in clock["arms"].values():
        assert arm["same_text"] == arm["answers"]


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (("-d", "ngram"), "no static trees"),
        (("--depth", "0"), "--depth takes"),
        (("--rows", "99"), "--rows takes"),
        (("--prompts", "1"), "at least two"),
        (("--tree", "x.txt"), ".json file"),
    ],
)
def test_what_is_refused(command, argv, hint, capsys):
    assert main([*command, *argv]) == 1
    assert hint in capsys.readouterr().err
