"""Where measurements go: never among the shipped results, which texts and tests are held against, unless recorded."""

import argparse
import importlib
import os
import re
import subprocess
from pathlib import Path

import pytest

from forerun.cli.lab import EXPERIMENTS
from forerun.core.errors import SpecError
from forerun.lab.run import SOURCES, Run, check_out

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A source tree of ours with a shipped file, which everything here takes for its own."""
    (tmp_path / "src" / "forerun").mkdir(parents=True)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "peers.json").write_text("shipped")
    monkeypatch.setattr("forerun.lab.run.SOURCES", tmp_path)
    return tmp_path


@pytest.fixture
def bench(tree, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    module = importlib.import_module("_bench")
    monkeypatch.setattr(module, "ROOT", tree)
    return module


NAMES = ("results/peers.json", "results/new.json", "results/deep/x.json", "src/../results/peers.json", "link/x.json")


@pytest.mark.parametrize("name", NAMES)
def test_253_shipped_results_are_written_only_to_record_them(tree, name, monkeypatch):
    (tree / "link").symlink_to(tree / "results")
    for out in (tree / name, Path(name)):
        monkeypatch.chdir(tree)
        with pytest.raises(SpecError, match="--record"):
            check_out(out)
        with pytest.raises(SpecError, match="--record"):
            Run("toy", out, {})
        check_out(out, record=True)
    assert [path.name for path in (tree / "results").iterdir()] == ["peers.json"], "not even a partial file"


@pytest.mark.parametrize("name", ["measured/peers.json", "peers.json", "results.json", "other/results/peers.json"])
def test_253_whatever_else_is_the_users(tree, name):
    check_out(tree / name)


def test_253_a_package_that_is_no_source_tree_ships_no_results(tree):
    (tree / "src" / "forerun").rmdir()
    check_out(tree / "results" / "mine.json")


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ((), "measured/peers.json"),
        (("--record",), "results/peers.json"),
        (("--out", "own.json"), "own.json"),
        (("--out", "results/two.json", "--record"), "results/two.json"),
    ],
)
def test_253_a_script_writes_a_file_of_the_users_own(bench, tree, words, written, monkeypatch):
    monkeypatch.chdir(tree)
    parser = argparse.ArgumentParser()
    bench.add_out(parser, "peers")
    with bench.measuring(parser.parse_args(words), "peers") as run:
        assert os.path.realpath(run.out) == str(tree / written)
    assert (tree / "results" / "peers.json").read_text() == "shipped", "not before anything was measured"


def test_253_a_script_is_refused_what_ships(bench, tree):
    parser = argparse.ArgumentParser()
    bench.add_out(parser, "peers")
    args = parser.parse_args(["--out", str(tree / "results" / "peers.json")])
    with pytest.raises(SpecError, match="--record"), bench.measuring(args, "peers"):
        pass


@pytest.mark.parametrize(("words", "folder"), [(("curve",), "measured"), (("--record", "curve"), "results")])
def test_253_the_study_writes_where_it_is_told(tmp_path, words, folder):
    for name, text in (("scripts/study", (ROOT / "scripts/study").read_text()), (".venv/bin/forerun", STUB)):
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
        file.chmod(0o755)
    subprocess.run([tmp_path / "scripts/study", *words], check=True, capture_output=True)
    calls = (tmp_path / "asked").read_text().splitlines()
    assert len(calls) == 7
    assert all(f" --out {folder}/curve_" in call and ("--record" in call) == (folder == "results") for call in calls)


STUB = '#!/bin/sh\necho "$@" >> asked\n'


def test_253_every_script_that_measures_goes_by_it():
    """By its source: starting each takes seconds."""
    scripts = [path for path in (ROOT / "scripts").rglob("*") if path.is_file() and path.suffix in ("", ".py")]
    texts = {path.name: path.read_text(encoding="utf-8") for path in scripts if path.name != "_bench.py"}
    measuring = [name for name, text in texts.items() if "measuring(args" in text]
    assert len(measuring) == 8
    assert all("add_out(" in texts[name] for name in measuring)
    assert [name for name, text in texts.items() if re.search(r"results/\w+\.json", text)] == []


def test_253_no_example_writes_over_what_ships():
    for name, module in EXPERIMENTS.items():
        assert "results/" not in (module.__doc__ or ""), name
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            assert "results/" not in block, page.name


def test_253_the_source_tree_is_ours():
    assert SOURCES == ROOT
