"""Our own form: `head.json` says what it is, `head.safetensors` holds the tensors, matrices as int8 rows with a scale
each, at a quarter of float32's size. Reading it and writing it again gives the same bits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from forerun.core.errors import LoadError, SpecError
from forerun.models.heads.config import HeadConfig, MedusaConfig, RecurrentConfig
from forerun.models.heads.formats.tensors import tensors_in
from forerun.models.heads.head import Head, Rows8, Stored
from forerun.models.heads.words import whole
from forerun.models.rope import Rope
from forerun.quant import int8
from forerun.weights.safetensors import read_json

VERSION = 1
CONFIG = "head.json"
_SCALE = ".scale"


def is_own(folder: Path) -> bool:
    """Whether the folder is of this form."""
    return (folder / CONFIG).is_file()


def read(folder: Path) -> Head:
    """The head there; LoadError for what cannot be."""
    said = read_json(folder / CONFIG)
    if said.get("version") != VERSION:
        raise LoadError(
            f"{folder / CONFIG} has version {said.get('version')!r} (allowed: {VERSION}): a newer forerun's"
        )
    config = _config(folder, said)
    held = tensors_in(folder)
    words = held.pop("words", None)
    scales = {name: held.pop(name) for name in list(held) if name.endswith(_SCALE)}
    tensors: dict[str, Stored] = {
        name: Rows8(value, scales[name + _SCALE]) if value.dtype == torch.int8 else value
        for name, value in held.items()
    }
    card = said.get("card")
    return Head(
        config,
        tensors,
        None if words is None else whole("words", words),
        str(said.get("fingerprint", "")),
        card if isinstance(card, Mapping) else {},
    )


def _config(folder: Path, said: Mapping[str, Any]) -> HeadConfig:
    try:
        values = dict(said["config"])
        kind: Any = MedusaConfig if values["kind"] == "medusa" else RecurrentConfig
        known = {field.name for field in fields(kind)}
        if odd := sorted(set(values) - known):
            raise LoadError(f"{folder / CONFIG} has a key {odd[0]!r} that this version does not know")
        values |= {name: tuple(values[name]) for name in ("taps", "windows") if name in values}
        if "rope" in values:
            values["rope"] = Rope(**values["rope"])
        made: HeadConfig = kind(**values)
        return made
    except (KeyError, TypeError, SpecError) as error:
        raise LoadError(f"{folder / CONFIG} does not describe a head: {error}") from error


def compacted(head: Head) -> Head:
    """The head as a folder holds it: its matrices as int8 rows."""
    held = {
        name: Rows8(*int8.quantise(value)) if not isinstance(value, Rows8) and value.ndim == 2 else value
        for name, value in head.tensors.items()
    }
    return replace(head, tensors=held)


def write(head: Head, folder: Path, compact: bool = True) -> None:
    """Write `head` there, its matrices as int8 rows if `compact`."""
    folder.mkdir(parents=True, exist_ok=True)
    head = compacted(head) if compact else head
    said = {
        "version": VERSION, "config": asdict(head.config), "fingerprint": head.fingerprint, "card": dict(head.card),
    }  # fmt: skip
    held: dict[str, Tensor] = {} if head.words is None else {"words": head.words.int()}
    for name, value in head.tensors.items():
        if isinstance(value, Rows8):
            held |= {name: value.codes, name + _SCALE: value.scales}
        else:
            held[name] = value
    save_file({name: value.contiguous() for name, value in held.items()}, folder / "head.safetensors", {"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
