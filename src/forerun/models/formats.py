"""Which format a matrix takes: what its file holds, what was asked for, and the reason where the two differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

Weights = Literal["auto", "f32", "bf16", "int8", "q4", "nf4"]
WEIGHTS: tuple[str, ...] = get_args(Weights)
"""The values of the `weights` option."""

KERNELS = {"F32": "f32", "BF16": "bf16", "F16": "bf16", "Q8_0": "q8_0", "Q4_0": "q4_0", "Q4_1": "q4_1"}
"""GGML's name of a type, and the packed format that keeps it."""
_FOUR_BITS = {"q4": "q4_1", "nf4": "nf4"}
_DTYPES = {"float32": ("F32", 4), "bfloat16": ("BF16", 2), "float16": ("F16", 2)}
_BLOCKS = ("q8_0", "q4_0", "q4_1")


def choose(weights: str, kinds: tuple[str, ...], edge: bool) -> tuple[str, str]:
    """The format of a matrix whose tensors the file holds as `kinds`, and why, if it is not simply what was asked for.

    `edge`: it turns ids into vectors or vectors into logits.
    """
    kept = {KERNELS.get(kind) for kind in kinds}
    same = kept.pop() if len(kept) == 1 else None
    if weights == "auto":
        return _auto(kinds, same)
    if weights == "q4" and same in ("q4_0", "q4_1"):
        return same, f"the file's own {same} is kept"
    if weights in _FOUR_BITS and edge:
        if same in _BLOCKS:
            return same, f"the file's own {same} is kept"
        return "int8", "the vocabulary's end is where 4 bits cost the text most, so it is int8"
    return _FOUR_BITS.get(weights, weights), ""


def changed(how: str, size: int, stored: Mapping[str, tuple[int, int]]) -> str:
    """The note about matrices in another format than their file's: `size` bytes where those in it, by type as many
    values and bytes as `stored` says, take less or more."""
    held = sum(nbytes for _, nbytes in stored.values())
    return f"{how}; the matrices take {_size(size)}, in the file {_size(held)}"


def as_dtype(stored: Mapping[str, tuple[int, int]], dtype: str) -> list[str]:
    """The note about a runtime that turns all matrices into `dtype`; none if the file holds nothing else."""
    kind, width = _DTYPES[dtype]
    if not (others := sorted(set(stored) - {kind})):
        return []
    verb = "becomes" if len(others) == 1 else "become"
    return [changed(f"{' and '.join(others)} {verb} {dtype}", width * sum(n for n, _ in stored.values()), stored)]


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**20:.0f} MiB" if nbytes >= 10 << 20 else f"{nbytes / 2**10:.0f} KiB"


def _auto(kinds: tuple[str, ...], same: str | None) -> tuple[str, str]:
    if same:
        return same, "F16 has no kernel, so it is bf16, with 3 bits less to a number" if "F16" in kinds else ""
    if missing := sorted({kind for kind in kinds if kind not in KERNELS}):
        return "int8", f"{' and '.join(missing)} {'has' if len(missing) == 1 else 'have'} no kernel, so it is int8"
    mixed = " and ".join(sorted(set(kinds)))
    if all(kind in ("F32", "BF16", "F16") for kind in kinds):
        return "f32", f"{mixed} lie in one product, so it is f32"
    return "int8", f"{mixed} lie in one product, so it is int8"
