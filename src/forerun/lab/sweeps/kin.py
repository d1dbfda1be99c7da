"""What kind of model a target is, and whether two differ in more than size: then no conclusion is drawn about size.

Only what the files tell is looked at. How a model was trained they do not tell, so size is never shown to be the cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.assemble import Config
from forerun.core.errors import SpecError
from forerun.lab.bench import Bench
from forerun.models.config import ModelConfig
from forerun.targets.native_runner import NativeRunner
from forerun.targets.paged import PagedTarget
from forerun.targets.torch_runner import TorchRunner

KINDS = {
    "family": "network",
    "vocab": "vocabulary",
    "tokenizer": "tokenizer",
    "runtime": "runtime",
    "formats": "weight formats",
    "kv": "format of keys and values",
}
"""What must be the same, and how it is called."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A target and the drafters that are tried with it."""

    config: Config
    drafters: tuple[str, ...]

    @property
    def model(self) -> str:
        """The name it was given by."""
        return self.config.model


def facts(bench: Bench) -> dict[str, Any]:
    """A target's kind and size; `tokenizer` is a fingerprint, None for random weights."""
    config, subject, spec, words = network(bench), bench.subject, bench.target.spec, bench.base.words
    return {
        "model": spec.name,
        "fingerprint": spec.fingerprint,
        "family": config.arch.name,
        "vocab": spec.vocab_size,
        "tokenizer": None if words is None else words.tokenizer.fingerprint,
        "layers": spec.layers,
        "hidden_size": spec.hidden_size,
        "runtime": subject.runtime,
        "weights": subject.weights,
        "formats": sorted(subject.formats) or [subject.weights],
        "kv": subject.kv,
        "weight_bytes": subject.weight_bytes,
        "stack": bench.stack,
    }


def network(bench: Bench) -> ModelConfig:
    """The network's description."""
    runner = bench.target.runner if isinstance(bench.target, PagedTarget) else None
    if isinstance(runner, NativeRunner):
        return runner.config
    if isinstance(runner, TorchRunner):
        return runner.network.config
    raise SpecError(f"the lab knows the networks of our own runtimes, got {type(bench.target).__name__}")


def differences(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """In what, beside size, targets differ from the first: a sentence for each."""
    first = targets[0]
    return [
        f"{other['model']} has another {called} than {first['model']}: {_shown(other[key])}, not {_shown(first[key])}"
        for other in targets[1:]
        for key, called in KINDS.items()
        if other[key] != first[key]
    ]


def conclusion(targets: Sequence[Mapping[str, Any]]) -> str | None:
    """Why nothing may be said about size; None if nothing that the files tell differs beside it."""
    found = differences(targets)
    if not found:
        return None
    return f"no conclusion about size, the targets differ in more than that: {'; '.join(found)}"


def _shown(value: object) -> str:
    if value is None:
        return "none"
    text = "+".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"


def said(differ: str | None) -> str:
    """How far the targets may be compared by size."""
    return differ or "nothing that the files tell differs beside size; how the models were trained is not known"
