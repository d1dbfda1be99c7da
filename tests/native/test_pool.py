"""The threads of a forward, where one of them fails: compiled beside the extension, where nothing throws of itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"
COMPILER = shutil.which("c++")


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
@pytest.mark.skipif(not CSRC.exists(), reason="csrc/ is not there")
@pytest.mark.parametrize("sanitizer", ["undefined", "thread"])
def test_307_312_313_what_a_thread_throws_is_thrown_by_the_call_and_the_pool_lives(sanitizer, tmp_path):
    program = tmp_path / "faults"
    sources = [Path(__file__).with_name("pool_faults.cpp"), CSRC / "pool.cpp"]
    options = ["-std=c++17", "-O1", "-pthread", f"-I{CSRC}", f"-fsanitize={sanitizer}", "-fno-sanitize-recover"]
    subprocess.run([COMPILER, *options, *sources, "-o", program], check=True)
    fixed = [shutil.which("setarch"), "-R"] if shutil.which("setarch") else []  # where addresses are drawn too widely
    clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # of another sanitizer
    done = subprocess.run([*fixed, program], capture_output=True, text=True, timeout=120, env=clean)
    assert (done.returncode, done.stdout) == (0, "so\n"), done.stdout + done.stderr
