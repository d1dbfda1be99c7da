"""Puts `families.py`, which tests of models and of targets share, on the path; tiny models run on one thread."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "models"))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Two threads on a matrix of 48 columns mostly wait for each other, and badly so on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
