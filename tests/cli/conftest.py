"""Puts `training_words.py` on the path; a tiny model, prompts of the user's own, and a corpus of both."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from training_words import SMALL

from forerun.cli.main import main
from forerun.testing.tiny import Tiny, write_folder


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("model"), Tiny(hidden=32, layers=3, max_len=512, sharpness=2.0))


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Where prompts of the user's own are, as options."""
    path = tmp_path_factory.mktemp("prompts") / "own.txt"
    path.write_text("\n".join(f"question {i}" for i in range(80)))
    return ["--data", str(path)]


@pytest.fixture(scope="session")
def corpus(model, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "corpus"
    assert main(["train", "corpus", "-m", str(model), "--out", str(folder), "--tokens", "900", *SMALL, *data]) == 0
    return folder
