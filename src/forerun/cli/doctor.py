"""Say what machine this is, which versions are installed, and what would be used and why.

example:
  forerun doctor --json"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the findings."""
    found = findings()
    if args.json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        for key, value in found.items():
            print(f"{key:22} {value}")
    return 0


def findings() -> dict[str, object]:
    """What was found, by name."""
    import torch

    from forerun import __version__
    from forerun.weights.pull import fetched, home

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cuda = torch.cuda.is_available()
    model = fetched("smollm2")
    return {
        "forerun": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": _version("transformers", 'not installed; the hf runtime needs pip install "forerun[hf]"'),
        "system": platform.platform(),
        "processor": _processor(),
        "cores usable": cores,
        "torch threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name(0) if cuda else "none found",
        "runtime": "torch: the only one built in; --runtime hf runs models through transformers",
        "device": "cpu unless --device says otherwise" + ("; --device cuda would work" if cuda else ""),
        "dtype": "float32: what the greedy text is compared in; --dtype bfloat16 halves memory",
        "cache": str(home()),
        "smollm2": str(model) if model else "not fetched; forerun pull smollm2",
    }


def _version(package: str, otherwise: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return otherwise


def _processor() -> str:
    if sys.platform == "linux":
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
