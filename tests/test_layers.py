"""Import rules: the contract holds, and a planted violation is seen."""

import shutil
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def copy(tmp_path):
    """A copy of the project's sources that may be spoilt."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


# An editable install puts a finder in front of the path that leads to the sources, wherever PYTHONPATH points.
LINT = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
from importlinter.cli import lint_imports_command as c; c()
"""


def lint(root):
    command = [sys.executable, "-c", LINT, "--no-cache"]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, env={"PYTHONPATH": str(root / "src")}, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_the_contract_holds(copy):
    code, output = lint(copy)
    assert code == 0, output


@pytest.mark.parametrize(
    ("room", "planted"),
    [
        ("core/plan.py", "import forerun.engine.step"),
        ("verify/match.py", "import forerun.drafters.ngram"),
        ("models/network.py", "import forerun.targets.torch_runner"),
        ("drafters/ngram.py", "import forerun.targets.torch_runner"),
        ("drafters/ngram.py", "import forerun.drafters.suffix"),
    ],
)
def test_a_planted_violation_is_seen(copy, room, planted):
    file = copy / "src" / "forerun" / room
    file.write_text(file.read_text() + f"\n{planted}\n")
    code, output = lint(copy)
    assert code != 0, output
    assert "BROKEN" in output


def test_imports_go_in_no_circle():
    """Those inside functions included; what is only imported for types is not."""
    graph = grimp.build_graph("forerun", exclude_type_checking_imports=True, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imported).prepare()  # CycleError names the circle


def test_a_room_without_a_floor_is_seen(copy):
    room = copy / "src" / "forerun" / "attic"
    room.mkdir()
    (room / "__init__.py").write_text("")
    code, output = lint(copy)
    assert code != 0, output
