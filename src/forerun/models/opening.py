"""From a path to packed weights in memory: out of the cache if its sources are as they were, else packed now.

Two keys. A path's key says which packed model its files gave last time, and holds while their sizes, times and inodes
stay: a warm start reads neither weights nor tokenizer of the model itself. The packed model's own key is a hash of the
files' bytes, the `weights` option and the layout's version, so the same files under another path share it. The layout
is one for all instruction sets, so that is in no key.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.core.errors import LoadError, unknown
from forerun.models.formats import WEIGHTS
from forerun.native.packed import VERSION, Fill, PackedModel, Writer, open_or_build, open_packed
from forerun.text.tokenizer import Tokenizer
from forerun.text.words import TextWords
from forerun.weights.parts import lone_gguf, part_names
from forerun.weights.pull import home

if TYPE_CHECKING:  # what reads sources is imported where one is read: a warm start does without
    from forerun.weights.folder import Checkpoint

_FOLDER = (
    "*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "tokenizer.json",
    "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json",
)  # fmt: skip
_EXTRAS = 2  # raise it when what is kept beside the weights (the meta) changes

State = dict[str, list[int]]
"""A model's files by name: size, time of change in ns, inode."""


def open_model(path: Path, weights: str = "auto") -> PackedModel:
    """The model at `path` (a folder or a .gguf file), packed as `weights` says and read into memory.

    `weights`: auto keeps what the file holds where there is a kernel for it; or f32, bf16, int8, q4, nf4. Where the
    cache cannot be written, the model is packed for this run alone, and a note says so.
    Raises SpecError for another `weights`, LoadError for files that cannot be used, CapacityError where disk or memory
    are too small.
    """
    if weights not in WEIGHTS:
        raise unknown("weights", weights, WEIGHTS)
    path = lone_gguf(path)
    state = _state(path)
    root = home() / "packed"
    index = root / "sources" / f"{_hash(str(path.resolve()), weights, VERSION, _EXTRAS)[:32]}.json"
    key = _recorded(index, state)
    found = open_packed(root / key) if key else None
    if found is None:
        from forerun.weights.folder import open_checkpoint

        checkpoint = open_checkpoint(path)
        tokenizer = tokenizer_of(checkpoint)
        key = _content_key(path, state, weights)
        try:
            found = open_or_build(root / key, packing(checkpoint, weights, tokenizer))
            _record(index, state, key)
        except OSError as error:
            found = _unkept(pack_now(checkpoint, weights, tokenizer), root, error)
    return replace(found, name=path.name)


def pack_now(checkpoint: Checkpoint, weights: str, tokenizer: Tokenizer | None = None) -> PackedModel:
    """A checkpoint packed into memory by way of a temporary file, and kept nowhere."""
    with tempfile.TemporaryDirectory(prefix="forerun-") as folder:
        try:
            found = open_or_build(Path(folder) / "packed", packing(checkpoint, weights, tokenizer))
        except OSError as error:
            raise LoadError(f"packed weights cannot be written ({error}); set TMPDIR or FORERUN_HOME") from error
    return replace(found, name=checkpoint.path.name)


def packing(checkpoint: Checkpoint, weights: str, tokenizer: Tokenizer | None) -> Fill:
    """What packs a checkpoint, for `open_or_build`."""
    from forerun.models.packing import pack_model

    def fill(writer: Writer) -> Mapping[str, Any]:
        meta = pack_model(checkpoint, weights, writer)
        if tokenizer is None:
            return {**meta, "tokenizer": None}
        return {**meta, "notes": [*meta["notes"], *tokenizer.notes], "tokenizer": tokenizer.state()}

    return fill


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """The checkpoint's own tokenizer."""
    from forerun.text.from_folder import from_folder
    from forerun.text.from_gguf import from_gguf

    return from_gguf(checkpoint.metadata) if checkpoint.kind == "gguf" else from_folder(checkpoint.path)


def words_of(packed: PackedModel) -> TextWords:
    """The tokenizer and chat template that were packed with the model; LoadError if it has none."""
    state = packed.meta.get("tokenizer")
    if state is None:
        raise LoadError(f"{packed.name} was packed without a tokenizer")
    return TextWords(Tokenizer.from_state(state))


def _state(path: Path) -> State:
    if path.is_dir():
        files = sorted({file for pattern in _FOLDER for file in path.glob(pattern)})
    else:
        files = [file for name in part_names(path.name) if (file := path.with_name(name)).exists()]
    facts = {file.name: file.stat() for file in files}
    return {name: [fact.st_size, fact.st_mtime_ns, fact.st_ino] for name, fact in facts.items()}


def _content_key(path: Path, state: State, weights: str) -> str:
    """A hash over every byte that counts. A lone file's name does not count; in a folder names are roles, and do."""
    parts: list[object] = [weights, VERSION, _EXTRAS]
    for name in sorted(state):
        with (path / name if path.is_dir() else path.with_name(name)).open("rb") as file:
            parts += [name if path.is_dir() else "", hashlib.file_digest(file, "sha256").hexdigest()]
    return f"{weights}-{_hash(*parts)[:32]}"


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()


def _recorded(index: Path, state: State) -> str | None:
    """The key under which these very files were packed, if they were."""
    try:
        held = json.loads(index.read_bytes())
        key = held["key"] if held["files"] == state else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return key if isinstance(key, str) and key == Path(key).name else None


def _record(index: Path, state: State, key: str) -> None:
    index.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=index.parent)  # a name of its own: threads may do this at once
    with os.fdopen(handle, "w") as file:
        file.write(json.dumps({"key": key, "files": state}))
    os.replace(scratch, index)


def _unkept(packed: PackedModel, root: Path, error: OSError) -> PackedModel:
    note = f"{root} cannot be written ({error.strerror or error}), so the weights were packed for this run alone"
    return replace(packed, meta={**packed.meta, "notes": [*packed.notes, note]})
