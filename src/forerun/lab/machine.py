"""What a figure is worth nothing without: the machine, the versions, the command."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from forerun.core.errors import SpecError

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
RUNS = ("src", "csrc", "scripts", "pyproject.toml", "requirements.txt")
"""What decides what runs; a tree whose texts alone were changed measures what its commit does."""
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def processor() -> str:
    """The processor's name as the system gives it."""
    if sys.platform == "linux":
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use by its affinity."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def last_level_cache(caches: Path = _CACHES) -> int | None:
    """Bytes of the largest cache that the first core reads through; None where the system does not say.

    A guest may be told more or less than it can use: the host's other guests share it.
    """
    sizes = []
    for file in caches.glob("index*/size"):
        text = file.read_text(encoding="ascii").strip()
        number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "")
        if number.isdigit():
            sizes.append(int(number) * _UNITS.get(unit, 1))
    return max(sizes, default=None)


def free_memory() -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return None


def resident_mb() -> float:
    """What this process holds in memory now, in 10^6 bytes; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return 0.0


def peak_mb() -> float | None:
    """The most that this process ever held in memory, in 10^6 bytes; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(most / 1e6 if sys.platform == "darwin" else most * 1024 / 1e6, 1)


def provenance(command: list[str] | None = None) -> dict[str, object]:
    """Machine, versions, command, and the `moment`; `command` is this process's own if None."""
    import torch

    from forerun import __version__

    argv = command or ["forerun", *sys.argv[1:]]
    return {
        "command": shlex.join(argv),
        **moment(),
        "forerun": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor(),
        "cores": cores(),
    }


def moment() -> dict[str, object]:
    """What is true when a measurement begins, and may be no more when it ends: date, commit, whether its tree was
    changed, the load."""
    return {
        "date": now(),
        "commit": commit(),
        "dirty": bool(_git("status", "--porcelain", "--", *RUNS)),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }


def now() -> str:
    """The date and time, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def commit() -> str:
    """The commit that our sources are of; empty where they are not under git."""
    return _git("rev-parse", "HEAD")


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all, and leave nothing else behind; SpecError if it cannot be."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise SpecError(f"cannot write {path}: {error.strerror or error}; give another name") from error
    finally:
        with suppress(OSError):  # gone where all went well
            part.unlink()


def _git(*args: str) -> str:
    """What git says of the folder that our sources lie in; empty where they are not under git, or there is none."""
    here = Path(__file__).parent
    try:
        inside = subprocess.run(
            ["git", "ls-files", "--error-unmatch", Path(__file__).name], cwd=here, capture_output=True, check=False
        )
        top = subprocess.run(
            ["git", "rev-parse", "--show-toplevel"], cwd=here, capture_output=True, text=True, check=False
        ).stdout.strip()
        if inside.returncode or not top:
            return ""
        return subprocess.run(["git", *args], cwd=top, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
