"""A part of scripts/nets at every commit: what a change of structure must leave as it is."""

import subprocess
import sys
from pathlib import Path

import pytest

from forerun.native import ext

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(bool(ext.why_not()), reason="no native runtime")
@pytest.mark.parametrize("parts", [("tiny", "--quick"), ("files", "samples")])
def test_texts_counts_views_and_figures_are_as_they_were(parts):
    done = subprocess.run([sys.executable, ROOT / "scripts" / "nets", *parts], capture_output=True, text=True)
    assert done.stdout == "everything is as it was\n", done.stdout + done.stderr[-2000:]
