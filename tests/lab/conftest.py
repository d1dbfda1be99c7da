"""A bench over a tiny model, and workloads for it."""

import sys

import pytest

from forerun.assemble import Config
from forerun.lab.bench import Bench
from forerun.targets.torch_runner import TorchRunner
from forerun.workloads.workload import Prompt, Workload


@pytest.fixture(scope="module")
def bench(models):
    return Bench.open(Config(str(models["folder"]), runtime="torch", threads=1))


@pytest.fixture
def work():
    texts = ("one two three one two three one", "the sea was the sea was the", "a b c a b c a b")
    return Workload("toys", tuple(Prompt(f"p{i}", (text,)) for i, text in enumerate(texts)), "tests")


@pytest.fixture
def work_clock(monkeypatch):
    """Time passes by forwards of torch, a millisecond each, and hardly otherwise: what takes longer does more."""
    now, forward = [0.0], TorchRunner.forward

    def clock():
        now[0] += 1e-7
        return now[0]

    def timed(*args, **options):
        now[0] += 1e-3
        return forward(*args, **options)

    for name, module in list(sys.modules.items()):
        if name.startswith("forerun.") and "perf_counter" in vars(module):
            monkeypatch.setattr(module, "perf_counter", clock)
    monkeypatch.setattr(TorchRunner, "forward", timed)
