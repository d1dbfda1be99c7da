"""The environment that peers run in, made once for these requirements."""

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

from forerun.lab.peers.environment import PYTHON, ROOT

ENVIRONMENT = ROOT / "build" / "peers"
NEEDS = ("xllamacpp==2026.10.11549", "torch==2.13.0", "transformers==5.24.0", "accelerate>=1.0", "gguf>=0.13")


def environment() -> Path:
    """Its Python."""
    mark = ENVIRONMENT / f"ready-{hashlib.sha256(' '.join(NEEDS).encode()).hexdigest()[:12]}"
    python = ENVIRONMENT / PYTHON
    if not mark.exists():
        print(f"making {ENVIRONMENT.relative_to(ROOT)}: {', '.join(NEEDS)}", file=sys.stderr, flush=True)
        if not python.exists():
            venv.create(ENVIRONMENT, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *NEEDS]
        subprocess.run(pip, check=True)
        mark.touch()
    return python
