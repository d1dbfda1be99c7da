"""What every bench script shares: an interpreter with forerun, and a results file that tells its own story."""

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def provenance() -> dict[str, object]:
    """Machine, versions, commit, command and load: what a figure is worth nothing without."""
    import torch

    from forerun import __version__
    from forerun.cli.doctor import findings

    found = findings()
    return {
        "command": shlex.join(["python", os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!results", ":!README.md")),
        "forerun": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": found["processor"],
        "cores": found["cores usable"],
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg(),
    }


def write(name: str, figures: dict[str, object]) -> None:
    """Write results/NAME.json whole, and print its figures as the last line."""
    path = ROOT / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    whole = path.with_suffix(".part")
    whole.write_text(json.dumps({"bench": provenance(), "figures": figures}, indent=1) + "\n")
    whole.replace(path)
    print(json.dumps(figures))


def _git(*args: str) -> str:
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
