"""Building: with a compiler that works, without one, with one that fails; what is in the packages."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from forerun.workloads.suites import SUITES

ROOT = Path(__file__).parents[2]
DATA = {"forerun/py.typed", "forerun/lab/page/page.css", "forerun/lab/trace/trace.js"} | {
    f"forerun/workloads/{name}.jsonl" for name in SUITES
}
STUB = "forerun/native/_ext.pyi"
PURE = "forerun-0.1.0-py3-none-any.whl"

# The editable install's finder would lead back to the working tree.
IMPORT = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
sys.path.insert(0, sys.argv[1])
from forerun.native import ext
assert ext.__file__.startswith(sys.argv[1]), ext.__file__
print(ext.why_not())
"""


@pytest.fixture
def copy(tmp_path):
    """What a build needs, to be spoilt."""
    root = tmp_path / "copy"
    root.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root)
    for name in ("src", "csrc"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return root


def build(root, *options, **env):
    """The finished process and what lies in its output folder."""
    out = root.parent / "out"
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-v", "-w", str(out)]
    done = subprocess.run(
        [*command, *options, str(root)], capture_output=True, text=True, env={**os.environ, **env}, check=False
    )
    return done, sorted(out.glob("*"))


def contents(wheel):
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


def whether_it_loads(wheel, folder):
    """What the unpacked wheel says of its extension."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    done = subprocess.run([sys.executable, "-c", IMPORT, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_a_compiler_the_install_is_pure_and_works(copy, tmp_path):
    done, wheels = build(copy, CXX="/nonexistent", FORERUN_NATIVE_REQUIRED="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the torch runtime serves" in done.stdout + done.stderr
    assert [wheel.name for wheel in wheels] == [PURE]
    names = contents(wheels[0])
    assert {*DATA, STUB} <= names
    assert not [name for name in names if name.endswith((".so", ".cpp"))]
    assert "not compiled" in whether_it_loads(wheels[0], tmp_path / "site")


def test_whoever_needs_the_extension_sees_the_build_fail(copy):
    done, wheels = build(copy, CXX="/nonexistent", FORERUN_NATIVE_REQUIRED="1")
    assert done.returncode != 0
    assert "/nonexistent" in done.stdout + done.stderr
    assert not wheels


@pytest.mark.full
@pytest.mark.skipif(shutil.which("c++") is None, reason="no compiler here")
def test_a_compiler_that_fails_is_as_none(copy, tmp_path):
    (copy / "csrc" / "module.cpp").write_text("#error spoilt\n")
    done, wheels = build(copy, FORERUN_NATIVE_REQUIRED="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [wheel.name for wheel in wheels] == [PURE]
    assert "not compiled" in whether_it_loads(wheels[0], tmp_path / "site")


@pytest.mark.full
@pytest.mark.skipif(shutil.which("c++") is None, reason="no compiler here")
def test_with_a_compiler_the_wheel_has_the_extension(copy, tmp_path):
    done, wheels = build(copy, FORERUN_NATIVE_REQUIRED="1")
    assert done.returncode == 0, done.stdout + done.stderr
    names = contents(wheels[0])
    assert {*DATA, STUB} <= names
    assert [name.rpartition("/")[0] for name in names if name.endswith(".so")] == ["forerun/native"]
    assert whether_it_loads(wheels[0], tmp_path / "site") == ""


def test_the_source_package_can_be_built_from(copy, tmp_path):
    code = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=copy, capture_output=True, check=True)
    (made,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(made) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.*")}
    assert {*sources, "pyproject.toml", "README.md", "LICENSE", f"src/{STUB}"} <= names
    assert {f"src/{name}" for name in DATA} <= names
    assert not [name for name in names if name.endswith((".so", ".o"))]
