"""Which .gguf files belong together: a model may be split into x-00001-of-00003.gguf and so on, all in one folder.

Only names are looked at here; `gguf.py` checks that what is in the files says the same.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from forerun.core.errors import LoadError

_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_NO_MODEL = re.compile(r"(^|[-._])(mmproj|imatrix)([-._]|$)", re.I)
"""Names of files that stand beside models and are none: projectors of images, statistics for quantising."""


def part_of(name: str) -> tuple[str, int, int] | None:
    """What a file's name says of a split model: its stem, which part this is (from 1) and of how many."""
    match = _PART.fullmatch(name)
    if match is None or not 1 <= int(match[2]) <= int(match[3]):
        return None
    return match[1], int(match[2]), int(match[3])


def part_names(name: str) -> list[str]:
    """Names of all parts of the model that `name` is a part of, in order; `name` alone if it is none."""
    part = part_of(name)
    if part is None:
        return [name]
    stem, _, count = part
    return [f"{stem}-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1)]


def gguf_choices(names: Iterable[str]) -> list[str]:
    """Of these file names (folders may stand before them) the models: of a split one its first part, or the first that
    is there."""
    models: dict[tuple[str, int], str] = {}
    for name in sorted(names):
        if name.endswith(".gguf") and not _NO_MODEL.search(Path(name).name):
            stem, _, count = part_of(name) or (name, 1, 1)
            models.setdefault((stem, count), name)
    return sorted(models.values())


def lone_gguf(path: Path) -> Path:
    """The .gguf file that a folder stands for, if it holds one model and that as .gguf; else the path itself."""
    if not path.is_dir() or any(path.glob("*.safetensors")):
        return path
    choices = gguf_choices(file.name for file in path.glob("*.gguf"))
    return path / choices[0] if len(choices) == 1 else path


def parts_beside(path: Path, number: int, count: int) -> list[Path]:
    """All files of the model of `count` parts, of which the one at `path` says that it is `number` (from 1); LoadError
    if that is not the first, or if one is missing."""
    part = part_of(path.name)
    if part is None or part[1:] != (number, count):
        raise LoadError(
            f"{path} is part {number} of {count} of a split model, which its name does not say: name the parts "
            f"{path.stem}-00001-of-{count:05d}.gguf and so on, in one folder, and pass the first"
        )
    files = [path.with_name(name) for name in part_names(path.name)]
    if number != 1:
        raise LoadError(
            f"{path} is part {number} of {count} of a split model: pass the first, {files[0].name}; all must be "
            "beside it"
        )
    if missing := [file.name for file in files if not file.exists()]:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise LoadError(
            f"{path} is the first of {count} parts, of which {len(missing)} are not beside it: download {shown} too"
        )
    return files
