"""A head's folder, of whatever form, opened for one target and checked against it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from forerun.core.errors import LoadError
from forerun.models.heads.config import RecurrentConfig
from forerun.models.heads.formats import medusa, mtp, own, safeai, speculators
from forerun.models.heads.formats.configs import differing
from forerun.models.heads.formats.heeded import Heeded, refuse_others
from forerun.models.heads.formats.tensors import tensors_in
from forerun.models.heads.head import Head
from forerun.weights.safetensors import read_json


@dataclass(frozen=True, slots=True)
class Fit:
    """What of a target a head must fit."""

    name: str
    hidden_size: int
    vocab_rows: int
    """Rows of its embedding, padding counted."""
    layers: int
    fingerprint: str


def open_head(path: Path, fit: Fit) -> tuple[Head, tuple[str, ...]]:
    """The head at `path`, and what its user should know of it; LoadError if it is damaged or another target's."""
    if not path.is_dir():
        raise LoadError(f"{path} is not a folder: a head is a folder with its config and weights")
    head, said = _read(path, fit)
    check_fit(head, fit)
    notes = []
    if head.fingerprint and head.fingerprint != fit.fingerprint:
        notes.append(
            f"the head in {path} was trained for a target with the fingerprint {head.fingerprint}, {fit.name} has "
            f"{fit.fingerprint}: the text is right all the same, but its guesses may seldom be"
        )
    if (base := _base(said)) and not fit.name.lower().startswith(Path(base).name.lower()):  # of any quantisation
        notes.append(f"the head in {path} says that it was made for {base}, the target is {fit.name}")
    if head.kind == "eagle3" and said and not head.own_end:
        notes.append(f"the head in {path} has no vocabulary end of its own: the target's serves")
    notes += [f"the head in {path}: {note}" for note in differing(said, head)]
    return head, tuple(notes)


def kind_at(path: Path) -> str:
    """What is in the folder `path`: a head's kind, or `model` for a whole model; LoadError if it is neither."""
    if own.is_own(path):
        return own.read(path).kind
    if any(path.glob("*.gguf")):
        return "model"
    held = tensors_in(path)
    said = read_json(path / "config.json")
    if speculators.is_speculators(said):
        return speculators.kind_of(said)
    if medusa.is_medusa(held):
        return "medusa"
    if mtp.is_mtp(held):
        return "mtp"
    mtp.refuse_others(held)
    return "model" if _whole(held) else safeai.kind_of(held)


def _whole(held: Collection[str]) -> bool:
    """Whether tensors of these names are a whole model's; a head may have all of these, and joins features besides."""
    names = set(held)
    return {"model.embed_tokens.weight", "model.norm.weight"} <= names and not {"fc.weight", "model.fc.weight"} & names


def _read(path: Path, fit: Fit) -> tuple[Head, dict[str, Any]]:
    """The head and its published config (empty for our own form), told apart by what the folder holds."""
    if own.is_own(path):
        return own.read(path), {}
    held, said = tensors_in(path), read_json(path / "config.json")
    heeded = Heeded(safeai.flattened(said))
    head = _published(path, heeded, held, fit)
    refuse_others(heeded)
    return head, said


def _published(path: Path, said: Mapping[str, object], held: Mapping[str, Tensor], fit: Fit) -> Head:
    if speculators.is_speculators(said):
        return speculators.read(said, held, fit.layers, fit.hidden_size)
    if medusa.is_medusa(held):
        return medusa.read(said, held, fit.vocab_rows)
    if mtp.is_mtp(held):
        return mtp.read(said, held)
    mtp.refuse_others(held)
    if _whole(held):
        raise LoadError(f"{path} holds a whole model, not a head: draft with it as -d model:path={path}")
    return safeai.read(said, held, fit.layers, fit.hidden_size)


def _base(said: Mapping[str, Any]) -> str:
    """The target that a published config names, if it does."""
    inner = said.get("speculators_config")
    verifier = inner.get("verifier") if isinstance(inner, Mapping) else None
    named = verifier.get("name_or_path") if isinstance(verifier, Mapping) else said.get("base_model_name_or_path")
    return named if isinstance(named, str) else ""


def check_fit(head: Head, fit: Fit) -> None:
    """LoadError unless widths, words and taps are this target's."""
    c = head.config
    for what, got, wanted in (
        ("hidden size", c.target_size, fit.hidden_size),
        ("vocabulary", c.vocab_size, fit.vocab_rows),
    ):
        if got != wanted:
            raise LoadError(
                f"the {c.kind} head expects {what} {got}, {fit.name} has {wanted}: heads are made for one target; "
                f'train one with "forerun train {c.kind} -m MODEL --out FOLDER"'
            )
    taps: Sequence[int] = c.taps
    if taps and max(taps) > fit.layers:
        raise LoadError(
            f"the {c.kind} head reads layer {max(taps)}, {fit.name} has {fit.layers}: it is another target's"
        )
    if not isinstance(c, RecurrentConfig):
        return
    for what, there in (("embedding", c.own_embedding), ("vocabulary end", head.own_end)):
        if not there and c.hidden_size != fit.hidden_size:
            raise LoadError(
                f"the {c.kind} head is {c.hidden_size} wide, {fit.name} {fit.hidden_size}: such a head brings "
                f"{'an' if what == 'embedding' else 'a'} {what} of its own, which is missing from its file"
            )
    if c.mask_id is not None and c.mask_id >= fit.vocab_rows:
        raise LoadError(f"the p-eagle head's mask token is {c.mask_id}, {fit.name} has ids up to {fit.vocab_rows - 1}")
