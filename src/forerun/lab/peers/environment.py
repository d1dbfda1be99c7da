"""The interpreter that peers run in: they need other versions of libraries than we do, and more of them."""

from __future__ import annotations

import os
from pathlib import Path

from forerun.core.errors import SpecError

VARIABLE = "FORERUN_PEERS"
PYTHON = "Scripts/python.exe" if os.name == "nt" else "bin/python"
ROOT = Path(__file__).parents[4]  # of a checkout


def interpreter(root: Path = ROOT) -> Path:
    """What $FORERUN_PEERS names, else build/peers of the checkout at `root`; SpecError if there is neither."""
    named = os.environ.get(VARIABLE)
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            raise SpecError(f"{VARIABLE} names the Python of the peers' environment, there is no file {named}")
        return path
    path = root / "build" / "peers" / PYTHON
    if not path.is_file():
        raise SpecError(
            "other engines run in an environment of their own, and there is none: `scripts/peers` of a checkout makes "
            f"build/peers, or set {VARIABLE} to a Python that has transformers, accelerate, gguf and xllamacpp"
        )
    return path
