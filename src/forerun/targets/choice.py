"""Which runtime runs a model, with which weights and memory: decided from the options, before a file is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from forerun.core.errors import SpecError
from forerun.native import ext

Runtime = Literal["auto", "native", "torch", "hf"]
Weights = Literal["auto", "f32", "bf16", "int8", "q4", "nf4"]
KV = Literal["auto", "f32", "bf16", "int8"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]

NATIVE_DTYPES: dict[Dtype, tuple[Weights, KV]] = {"float32": ("f32", "f32"), "bfloat16": ("bf16", "bf16")}


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for."""

    runtime: Runtime = "auto"
    weights: Weights = "auto"
    kv: KV = "auto"
    dtype: Dtype = "auto"
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Choice:
    """What runs, and why: `weights` and `kv` count for the native runtime, `dtype` for the others."""

    runtime: Literal["native", "torch", "hf"]
    why: str
    weights: Weights = "auto"
    kv: KV = "auto"
    dtype: str = "float32"
    device: str = "cpu"
    dtype_given: bool = False
    """Whether somebody asked for this dtype."""


def choose(wish: Wish) -> Choice:
    """The runtime for these options; SpecError for options that contradict one another or cannot be had here."""
    if wish.runtime in ("torch", "hf"):
        return _other(wish, wish.runtime, "asked for")
    against = _against(wish)
    if wish.runtime == "native" and against:
        raise SpecError(f"runtime native cannot be used: {against}; leave runtime out, or take torch")
    return _other(wish, "torch", against) if against else _native(wish)


def _against(wish: Wish) -> str:
    """Why the native runtime does not serve; empty if it does."""
    if wish.device != "cpu":
        return f"it runs on CPUs, and device {wish.device} was asked for"
    if wish.dtype == "float16":
        return "it has no float16"
    return ext.why_not()


def _native(wish: Wish) -> Choice:
    weights, kv = wish.weights, wish.kv
    why = "asked for" if wish.runtime == "native" else "the default on CPUs"
    if wish.dtype != "auto":
        told, memory = NATIVE_DTYPES[wish.dtype]
        if weights not in ("auto", told):
            raise SpecError(
                f"dtype {wish.dtype} and weights {weights} contradict each other (dtype means weights {told}): "
                "give weights alone"
            )
        weights, kv = told, memory if kv == "auto" else kv
    return Choice("native", why, weights, kv)


def _other(wish: Wish, runtime: Literal["torch", "hf"], why: str) -> Choice:
    for name, value in (("weights", wish.weights), ("kv", wish.kv)):
        if value != "auto":
            reason = f" (not used here: {why})" if wish.runtime == "auto" else ""
            raise SpecError(
                f"{name} {value} is an option of the native runtime{reason}; runtime {runtime} takes dtype "
                f"({', '.join(get_args(Dtype)[1:])})"
            )
    dtype, given = ("float32", False) if wish.dtype == "auto" else (wish.dtype, True)
    return Choice(runtime, why, dtype=dtype, device=wish.device, dtype_given=given)
