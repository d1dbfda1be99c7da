"""Which file and format a peer reads so that it computes with the weights that we compute with, or why it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from forerun.core.errors import SpecError
from forerun.lab.bench import Bench
from forerun.lab.shapes import is_random
from forerun.lab.subject import Subject
from forerun.targets.native_runner import NativeRunner
from forerun.targets.paged import PagedTarget
from forerun.weights.parts import lone_gguf
from forerun.weights.pull import home, resolve

CONVERTED = {"bf16": "BF16", "int8": "Q8_0"}
"""Our formats that llama.cpp has under these names, in files made from the model's own."""
DTYPES = {"bf16": "bfloat16", "f32": "float32"}


@dataclass(frozen=True, slots=True)
class Reads:
    """What a peer loads."""

    path: Path
    weights: str
    """For people: `BF16`, `the file's own q4_1+q8_0`, `bfloat16`."""
    dtype: str = ""


def model_path(bench: Bench) -> Path:
    """The model's folder or its .gguf file; SpecError for random weights, which are in no file."""
    model = bench.base.config.model
    if is_random(model):
        raise SpecError(f"other engines read files, and {model} is in none: leave --baseline out")
    return lone_gguf(resolve(model).resolve())


def for_transformers(bench: Bench) -> Reads:
    """The model's own files in bfloat16 or float32; SpecError for other weights."""
    formats = bench.subject.formats
    weights = next(iter(formats)) if len(formats) == 1 else bench.subject.weights
    if weights not in DTYPES:
        raise SpecError(
            f"transformers is compared at the weights bf16 or f32, got {_named(bench.subject)}: give --weights bf16"
        )
    return Reads(model_path(bench), DTYPES[weights], DTYPES[weights])


def for_llama(bench: Bench) -> Reads:
    """The model's own .gguf file, or one made from it in the format that we run; SpecError for other weights."""
    path, subject = model_path(bench), bench.subject
    if path.is_dir():
        raise SpecError(f"llama.cpp reads .gguf files, and {path.name} is a folder of another kind")
    if subject.runtime == "native" and subject.weights == "auto":
        if notes := _notes(bench):
            raise SpecError(f"llama.cpp would read other weights than we do ({notes}): give --weights bf16 or int8")
        return Reads(path, f"the file's own {'+'.join(sorted(subject.formats))}")
    if subject.weights not in CONVERTED:
        raise SpecError(f"llama.cpp is compared at the weights auto, bf16 or int8, got {_named(subject)}")
    from forerun.lab.peers.convert import converted

    kind = CONVERTED[subject.weights]
    return Reads(converted(path, kind, home() / "peers"), kind)


def _notes(bench: Bench) -> str:
    """Where we do not keep what the file holds, and why."""
    target = bench.target
    runner = target.runner if isinstance(target, PagedTarget) else None
    return "; ".join(runner.packed.reasons) if isinstance(runner, NativeRunner) else ""


def _named(subject: Subject) -> str:
    inside = "+".join(sorted(subject.formats))
    return f"{subject.weights} ({inside})" if inside and inside != subject.weights else subject.weights
