"""A bench over a tiny model, and workloads for it."""

import pytest

from forerun.assemble import Config
from forerun.lab.bench import Bench
from forerun.workloads.workload import Prompt, Workload


@pytest.fixture(scope="module")
def bench(models):
    return Bench.open(Config(str(models["folder"]), runtime="torch", threads=1))


@pytest.fixture
def work():
    texts = ("one two three one two three one", "the sea was the sea was the", "a b c a b c a b")
    return Workload("toys", tuple(Prompt(f"p{i}", (text,)) for i, text in enumerate(texts)), "tests")
