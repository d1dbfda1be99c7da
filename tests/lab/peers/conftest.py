"""A peer that is a few lines of Python, started as the real ones are."""

import sys
from pathlib import Path

import pytest

from forerun.lab.peers import arm, environment
from forerun.lab.peers.arm import Peer
from forerun.lab.peers.files import Reads

ECHO = """
import os, time
print("libraries print at import")

def opened(settings):
    def answer(ids, max_tokens, ends):
        print("and in between")
        tokens = [ids[-1]] * max_tokens if not ends else [ids[-1], ends[0]]
        return {"tokens": tokens, "first_s": 0.25, "decode_s": 0.5, "cpu_s": 0.75}

    def die():
        os._exit(3)

    def fail():
        raise ValueError("bad\\nnews")

    def sleep():
        time.sleep(60)

    return {"echo": "1.2", "pid": os.getpid(), **settings}, {"answer": answer, "die": die, "fail": fail, "sleep": sleep}
"""
PYTHON = Path(sys.executable)


@pytest.fixture
def module(tmp_path):
    """The fake's file."""
    path = tmp_path / "echo.py"
    path.write_text(ECHO)
    return path


@pytest.fixture
def fake(module, monkeypatch):
    """The peer `transformers` is the fake, and its interpreter ours."""
    monkeypatch.setitem(arm.PEERS, "transformers", Peer(module, lambda bench: Reads(module, "f32", "float32")))
    monkeypatch.setenv(environment.VARIABLE, sys.executable)
