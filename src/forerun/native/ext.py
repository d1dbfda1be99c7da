"""The door to the compiled extension: what it offers, or why it is not there; instruction set and threads.

`ext.Program`, `ext.KV`, `ext.Arena` and the rest are the extension's own names (`_ext.pyi` has them all). Importing
this module never fails; asking it for one of them where there is no extension does.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from forerun.core.errors import SpecError, unknown

if TYPE_CHECKING:
    # Said twice, `X as X`, because this module hands them on.
    from forerun.native._ext import FORMATS as FORMATS
    from forerun.native._ext import KV as KV
    from forerun.native._ext import Arena as Arena
    from forerun.native._ext import Program as Program
    from forerun.native._ext import argmax as argmax
    from forerun.native._ext import cores as cores
    from forerun.native._ext import cpu_quota as cpu_quota
    from forerun.native._ext import isa_runs as isa_runs
    from forerun.native._ext import isas as isas
    from forerun.native._ext import likeliest as likeliest
    from forerun.native._ext import nucleus as nucleus
    from forerun.native._ext import pack_bf16 as pack_bf16
    from forerun.native._ext import pack_blocks as pack_blocks
    from forerun.native._ext import pack_f32 as pack_f32
    from forerun.native._ext import pack_int8 as pack_int8
    from forerun.native._ext import pack_nf4 as pack_nf4
    from forerun.native._ext import packed_bytes as packed_bytes
    from forerun.native._ext import probe as probe
    from forerun.native._ext import race as race
    from forerun.native._ext import threads as threads
    from forerun.native._ext import unpack as unpack

ISA_VARIABLE = "FORERUN_ISA"
MOST_THREADS = 1024
TESTS_ONLY = "amx_emulated"  # AMX kernels whose tile instructions are emulated: slow, and right wherever AVX-512 is


def extension() -> ModuleType | None:
    """The compiled module, or None if it cannot be had; `why_not` says why."""
    return _load()[0]


def why_not() -> str:
    """Why there is no extension; empty if there is one."""
    return _load()[1]


@cache
def _load() -> tuple[ModuleType | None, str]:
    try:
        module = import_module("forerun.native._ext")
    except ModuleNotFoundError as error:
        if error.name != "forerun.native._ext":
            return None, f"the compiled extension does not load: {error}"
        return None, (
            "the extension was not compiled when forerun was installed: no C++17 compiler was found, or it failed; "
            "install one and run pip install again, or take a ready wheel"
        )
    except ImportError as error:  # made for another system, say
        return None, f"the compiled extension does not load: {error}"
    return module, ""


def required() -> ModuleType:
    """The compiled module; SpecError if there is none."""
    module, why = _load()
    if module is None:
        raise SpecError(f"the native runtime cannot be used: {why}; the torch runtime (runtime torch) can")
    return module


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # what the import system and inspection ask for
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(required(), name)


def choose_isa() -> tuple[str, str]:
    """The instruction set to use and why: the best that runs here, unless FORERUN_ISA names another that does.

    SpecError if that name is unknown or does not run here, or if there is no extension.
    """
    module = required()
    runs = [name for name, reason in module.isas().items() if not reason]
    asked = os.environ.get(ISA_VARIABLE, "").strip()
    if not asked:
        return runs[0], "the best that this processor, this system and this build run"
    reasons: dict[str, str] = module.isas()
    if asked not in reasons:
        raise unknown(f"instruction set in {ISA_VARIABLE}", asked, runs)
    if asked in runs:
        return asked, f"{ISA_VARIABLE} asks for it" + (f"; {runs[0]} would run too" if asked != runs[0] else "")
    if asked == TESTS_ONLY and module.isa_runs(asked):
        return asked, f"{ISA_VARIABLE} asks for it; {reasons[asked]}"
    reason = "it needs avx512_bf16" if asked == TESTS_ONLY else reasons[asked]
    raise SpecError(
        f"{ISA_VARIABLE}={asked} does not run here: {reason} (what runs: {', '.join(runs)}); unset it for the best"
    )


def isa() -> str:
    """The instruction set to use; errors as for `choose_isa`."""
    return choose_isa()[0]


def set_threads(count: int | None) -> None:
    """Run forwards on `count` threads (None: as many as there are cores to use); warns if there are fewer cores."""
    module = required()
    cores: int = module.cores()
    if count is not None and (not isinstance(count, int) or not 1 <= count <= MOST_THREADS):
        raise SpecError(f"threads must be a whole number from 1 to {MOST_THREADS}, got {count!r}")
    if count is not None and count > cores:
        warnings.warn(
            f"{count} threads on {cores} usable core{'s'[: cores > 1]}: they will wait for each other; "
            f"{cores} is the fastest",
            RuntimeWarning,
            stacklevel=2,
        )
    module.set_threads(count or 0)
    _asked["threads"] = count is not None


def threads_set() -> bool:
    """Whether somebody said how many threads forwards run on; else they run on as many as pay, see `tuner`."""
    return _asked["threads"]


_asked = {"threads": False}
