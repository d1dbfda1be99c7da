"""From a head's name or folder to a drafter beside a target, on whatever runs the target."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

from forerun.core.errors import LoadError, SpecError
from forerun.core.protocols import Drafter, Target
from forerun.costs.prices import FREE, Prices
from forerun.drafters.recurrent import HeadOptions
from forerun.models.heads.head import Head
from forerun.models.heads.opening import Fit, open_head
from forerun.targets.paged import PagedTarget
from forerun.weights.pull import resolve, resolve_head
from forerun.weights.safetensors import read_json

_KV_TOKENS = 8192


def drafter(cls: Callable[..., Any], name: str, options: HeadOptions, target: Target, prices: Prices = FREE) -> Drafter:
    """The drafter `cls` with the head that `options` name; LoadError for a head that does not fit the target."""
    fit = fit_of(target)
    head, notes = open_head(folder_of(name, options.path, fit), fit)
    if head.kind != name:
        raise SpecError(f"{options.path} holds a head of the kind {head.kind}: draft with -d {head.kind}:path=…")
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return beside(cls, head, options, target, prices)


def beside(cls: Callable[..., Any], head: Head, options: HeadOptions, target: Target, prices: Prices = FREE) -> Drafter:
    """The drafter `cls` with `head`, run where the target runs, whose rows have these prices."""
    runner = runner_for(head, options, target)
    level = runner.weight_bytes / target.spec.weight_bytes if target.spec.weight_bytes else 0.0
    pool = target.pool if isinstance(target, PagedTarget) else None
    made = cls(
        runner, options, vocab=target.spec.vocab_size, layers=target.spec.layers,
        kv_tokens=pool.blocks * pool.block_size if pool else _KV_TOKENS, remember=pool is not None and pool.remember,
        worth=options.worth(prices, level),
    )  # fmt: skip
    return cast(Drafter, made)


def runner_for(head: Head, options: HeadOptions, target: Target) -> Any:
    """What runs the head beside this target; neither runtime is imported for the other's sake."""
    runner: Any = target.runner if isinstance(target, PagedTarget) else None
    if hasattr(runner, "packed"):
        from forerun.models.heads.native import NativeMedusa, NativeRecurrent

        kind: Any = NativeMedusa if head.kind == "medusa" else NativeRecurrent
        return kind(head, runner.packed, options.format)
    if hasattr(runner, "network"):
        from forerun.models.heads.plain import TorchMedusa, TorchRecurrent

        network = runner.network
        end = network.end_rows()
        if head.kind == "medusa":
            return TorchMedusa(head, end)
        return TorchRecurrent(head, network.embedding, end)
    raise SpecError(f"{target.spec.name!r}: heads draft beside the native and the torch runtime")


def fit_of(target: Target) -> Fit:
    """What of the target a head must fit."""
    spec = target.spec
    rows = target.runner.facts.vocab_rows if isinstance(target, PagedTarget) else spec.vocab_size
    return Fit(spec.name, spec.hidden_size, rows, spec.layers, spec.fingerprint)


def folder_of(name: str, path: str, fit: Fit) -> Path:
    """Where the head is: what was said, or the one that comes with forerun for this target."""
    if path:
        local = Path(path)
        if local.exists():
            return local
        if len(local.parts) != 2 or local.is_absolute():
            raise LoadError(f"there is no head at {path}: give its folder, or org/name")
        return resolve_head(path)
    if found := shipped().get((name, fit.fingerprint)):
        return found
    raise SpecError(
        f"{name} needs a head for {fit.name}: -d {name}:path=FOLDER; train one with `forerun train {name} -m MODEL "
        "--out FOLDER`"
    )


def head_folder(text: str, fit: Fit) -> Path:
    """Where a head is that is called as `-d` has it: the kind of one that comes with forerun, a folder, or org/name."""
    kind, _, path = text.partition(":path=")
    if kind in {known for known, _ in shipped()} and not Path(text).is_dir():
        return folder_of(kind, path, fit)
    return folder_of("head", text, fit)


@cache
def shipped() -> dict[tuple[str, str], Path]:
    """Heads that come with forerun: (kind, fingerprint of the target) -> folder."""
    found = {}
    for path in sorted(Path(__file__).with_name("shipped").glob("*/*/head.json")):
        said = read_json(path)
        found[said["config"]["kind"], said["fingerprint"]] = path.parent
    return found


def shipped_for(model: str) -> list[str]:
    """Kinds of the heads that come with forerun for `model`, a name or path as everywhere."""
    from forerun.weights.folder import open_checkpoint  # a warm start of a model does without

    found = shipped()
    if not found:
        return []
    mark = open_checkpoint(resolve(model)).fingerprint
    return [kind for kind, target in found if target == mark]
