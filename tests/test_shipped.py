"""The heads that come with forerun: small enough, whole, told of, and nobody's paths in them."""

from __future__ import annotations

import json

import pytest

from forerun import heads
from forerun.models.heads.config import KINDS
from forerun.models.heads.formats import own

SMOLLM2 = "809f0089f308ecb8"
MOST_MB = 48.0
FOUND = sorted(heads.shipped().items())


def test_four_kinds_for_smollm2_and_not_too_large():
    assert [kind for (kind, mark), _ in FOUND if mark == SMOLLM2] == ["eagle3", "medusa", "mtp", "p-eagle"]
    size = sum(path.stat().st_size for _, folder in FOUND for path in folder.iterdir())
    assert size <= MOST_MB * 1e6


@pytest.mark.parametrize(("kind", "folder"), [(kind, folder) for (kind, _), folder in FOUND])
def test_each_is_whole_and_says_how_it_was_made(kind, folder):
    head = own.read(folder)
    assert head.kind == kind in KINDS
    card = head.card
    assert card["tau"]["all"] > 1.3
    assert card["corpus"]["learnt"] > 500_000
    assert card["command"].startswith(f"forerun train {kind} ")
    said = (folder / "head.json").read_text() + (folder / "README.md").read_text()
    for place in ("/work", "/tmp", "/home", "/root"):
        assert place not in said
    assert json.loads((folder / "head.json").read_text())["fingerprint"] == SMOLLM2
