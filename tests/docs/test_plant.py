"""The faults of scripts/plant still apply: their text stands where they say, once, and their test exists."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("_plant", ROOT / "scripts" / "_plant.py")
plant = sys.modules["_plant"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(plant)
FAULTS = plant.faults()
CASES = {int(case) for case in re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "failures.md").read_text("utf-8"), re.M)}


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.case}-{i}" for i, fault in enumerate(FAULTS)])
def test_a_fault_applies_and_its_test_exists(fault):
    planted = fault.planted(ROOT)
    if fault.file.endswith(".py"):
        compile(planted, fault.file, "exec")
    path, _, name = fault.test.partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8")
    assert fault.case in CASES


def test_a_fault_that_does_not_apply_is_told(tmp_path):
    (tmp_path / "file.py").write_text("a = 1\na = 1\n")
    fault = plant.Fault(1, "what", "file.py", "a = 1", "a = 2", "tests/x.py::test_x")
    with pytest.raises(ValueError, match="stands 2 times"):
        fault.planted(tmp_path)
