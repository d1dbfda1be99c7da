"""Puts `tiny_corpus.py` on the path; a tiny target, and a corpus that it made itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from tiny_corpus import ENDS, begun, fill, tiny_target

from forerun.testing.tiny import Tiny, write_folder
from forerun.train.corpus import Corpus


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    """A model that is unsure of everything, so that its turns end soon."""
    tiny = Tiny(hidden=32, layers=2, max_len=512, sharpness=2.0, extra=ENDS)
    return write_folder(tmp_path_factory.mktemp("target"), tiny)


@pytest.fixture(scope="session")
def corpus(tiny_folder, tmp_path_factory) -> Corpus:
    base = tiny_target(tiny_folder)
    return fill(begun(tmp_path_factory.mktemp("corpus"), base), base, 600)
