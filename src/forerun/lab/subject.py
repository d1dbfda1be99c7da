"""What is measured: a target by name, with what the figures need to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch

from forerun.assemble import Config, choice_for
from forerun.core.errors import SpecError
from forerun.core.protocols import Target
from forerun.lab.shapes import random_checkpoint
from forerun.models.opening import pack_now
from forerun.native import ext
from forerun.targets.load import load as load_torch
from forerun.targets.native_runner import NativeRunner
from forerun.targets.native_runner import load as load_native
from forerun.targets.paged import PagedTarget
from forerun.targets.threads import use_threads
from forerun.targets.torch_runner import TorchRunner

SHORT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True, slots=True)
class Subject:
    """A target, how it runs, and what it reads: `weight_bytes` in every forward, `token_bytes` a token of context."""

    target: Target
    runtime: str
    weights: str
    formats: Mapping[str, int]
    """How many matrices are in which format."""
    kv: str
    isa: str
    threads: int
    weight_bytes: int
    token_bytes: int


def random_target(config: Config) -> PagedTarget:
    """A target over random weights, which are kept nowhere."""
    checkpoint = random_checkpoint(config.model)
    choice = choice_for(config)
    use_threads(config.threads, choice)
    if choice.runtime == "native":
        packed = pack_now(checkpoint, choice.weights)
        return load_native(packed, kv=choice.kv, max_len=config.max_len, kv_tokens=config.kv_tokens, reuse=False)
    return load_torch(
        checkpoint,
        dtype=choice.dtype,
        device=choice.device,
        max_len=config.max_len,
        kv_tokens=config.kv_tokens,
        reuse=False,
    )


def describe(target: Target) -> Subject:
    """How a target of ours runs and what it reads; SpecError for another one."""
    runner = target.runner if isinstance(target, PagedTarget) else None
    if isinstance(runner, NativeRunner):
        packed = runner.packed
        isa, threads = ext.isa(), cast(Any, ext).threads()
        facts = "native", packed.weights, dict(packed.formats), runner.kv_format, isa, threads
    elif isinstance(runner, TorchRunner):
        name = SHORT.get(runner.facts.dtype, runner.facts.dtype)
        isa = torch.backends.cpu.get_cpu_capability().lower()
        facts = "torch", name, {}, name, isa, torch.get_num_threads()
    else:
        raise SpecError(f"the lab measures our own runtimes, native and torch, got {type(target).__name__}")
    return Subject(target, *facts, runner.facts.weight_bytes, runner.facts.token_bytes)
