"""What tests of lab commands share: a bandwidth that needs no measuring, and a small file of prompts."""

import json

import pytest

TEXTS = ("one two one two one", "the sea was the sea", "a b a b a b", "red red red")


@pytest.fixture(autouse=True)
def quick_reader(monkeypatch):
    for module in ("bench", "bandwidth"):
        monkeypatch.setattr(f"forerun.lab.{module}.reader", lambda: lambda nbytes, seconds: 2e10)


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    return path
