"""A bench over a tiny model that is not too sure of itself: its draws differ, as a real model's do."""

import pytest

from forerun.assemble import Config
from forerun.lab.bench import Bench
from forerun.testing.tiny import Tiny, write_folder


@pytest.fixture(scope="session")
def unsure(tmp_path_factory):
    """The model's folder."""
    return write_folder(tmp_path_factory.mktemp("unsure") / "model", Tiny(sharpness=1.5, seed=3))


@pytest.fixture(scope="module")
def bench(unsure):
    return Bench.open(Config(str(unsure), runtime="torch", threads=1))
