"""Scripts and results stand on what is there: no names that moved, no file that nothing shows."""

import ast
import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from forerun.lab.experiments import views
from forerun.lab.views import spoken

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    path
    for path in sorted((ROOT / "scripts").iterdir())
    if path.is_file() and (path.suffix == ".py" or path.read_text(encoding="utf-8").startswith("#!/usr/bin/env python"))
]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_what_a_script_imports_of_forerun_is_there(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "forerun":
            module = import_module(node.module)
            for name in node.names:
                there = hasattr(module, name.name) or find_spec(f"{node.module}.{name.name}")
                assert there, f"{node.module} has no {name.name} (line {node.lineno})"


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*.json")), ids=lambda path: path.stem)
def test_every_results_file_can_be_shown(path):
    held = json.loads(path.read_text(encoding="utf-8"))
    assert spoken(views(held["experiment"], held["figures"]))
