from __future__ import annotations

import subprocess
import sys
from dataclasses import is_dataclass

import pytest

from forerun.core.errors import SpecError
from forerun.drafters import DRAFTERS, drafter_entry


def test_every_name_leads_to_its_class():
    for name, entry in DRAFTERS.items():
        cls = entry.load()
        assert entry.summary
        assert cls.name == name
        assert is_dataclass(cls.Options)


def test_a_drafter_is_imported_when_it_is_asked_for():
    code = "import forerun.drafters, sys; print('forerun.drafters.ngram' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_unknown_names_get_a_suggestion():
    with pytest.raises(SpecError, match="did you mean 'ngram'"):
        drafter_entry("ngrams")
