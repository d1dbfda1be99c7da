"""Named tensors behind one narrow face, and the strict way of taking them.

A model takes every tensor by name and shape and then calls `finish`: a tensor that is missing, has
another shape, or is left over is an error. Silent re-initialisation is the field's worst loading bug.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from forerun.core.errors import LoadError

_HARMLESS = re.compile(
    r"(^|\.)rotary_emb\.(inv_freq|cos_cached|sin_cached)$|(^|\.)(masked_bias|attn\.bias)$|^lm_head\.weight$"
)

Raw = tuple[str, npt.NDArray[np.uint8]]
"""GGML's name of a block format, and the blocks [rows, bytes per row] as the file has them (not writable)."""


class TensorSource(Protocol):
    """Where a checkpoint's tensors come from, by Hugging Face name."""

    def names(self) -> frozenset[str]:
        """Every name that `shape` and `load` accept."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor without reading it."""

    def load(self, name: str) -> torch.Tensor:
        """The tensor on the CPU: float32, bfloat16 or float16 as stored, quantised formats as float32."""

    def raw(self, name: str) -> Raw | None:
        """The tensor's blocks as the file holds them, if it holds blocks; None if it holds floats."""


class StoredSource(TensorSource, Protocol):
    """A source whose tensors lie in files."""

    def chunks(self, name: str) -> Iterator[torch.Tensor]:
        """The tensor's rows as float32, in pieces."""

    def stored(self, name: str) -> tuple[str, int]:
        """The name of the tensor's type in the file, and its bytes there."""


class Renamed:
    """A source under other names: `theirs` maps each new name to the source's own."""

    def __init__(self, source: StoredSource, theirs: Mapping[str, str]) -> None:
        self._source, self._theirs = source, dict(theirs)

    def names(self) -> frozenset[str]:
        return frozenset(self._theirs)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._source.shape(self._theirs[name])

    def load(self, name: str) -> torch.Tensor:
        return self._source.load(self._theirs[name])

    def raw(self, name: str) -> Raw | None:
        return self._source.raw(self._theirs[name])

    def chunks(self, name: str) -> Iterator[torch.Tensor]:
        return self._source.chunks(self._theirs[name])

    def stored(self, name: str) -> tuple[str, int]:
        return self._source.stored(self._theirs[name])


def matrices(source: StoredSource) -> dict[str, tuple[int, int]]:
    """Of the source's matrices, by type: how many values they hold, and how many bytes those take in their file."""
    found: dict[str, tuple[int, int]] = {}
    for name in source.names():
        if len(shape := source.shape(name)) > 1:
            kind, nbytes = source.stored(name)
            values, held = found.get(kind, (0, 0))
            found[kind] = values + math.prod(shape), held + nbytes
    return found


class Take:
    """Takes tensors out of a source, checking shapes, and knows at the end what nobody took."""

    def __init__(self, source: TensorSource) -> None:
        self._source = source
        self._names = source.names()
        self._taken: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the source holds that name; asking does not count as taking."""
        return name in self._names

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
        """The named tensor in that dtype on that device; LoadError if it is missing or shaped otherwise."""
        return self.take_stored(name, shape).to(device=device, dtype=dtype)

    def take_stored(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The named tensor on the CPU, floats in the dtype that the source holds; errors as for `take`."""
        self._check(name, shape)
        self._taken.add(name)
        return self._source.load(name)

    def take_raw(self, name: str, shape: tuple[int, ...]) -> Raw | None:
        """The named tensor's blocks; None, and not taken, if the source holds floats. Errors as for `take`."""
        self._check(name, shape)
        got = self._source.raw(name)
        if got is not None:
            self._taken.add(name)
        return got

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        if name not in self._names:
            raise LoadError(
                f"tensor {name!r} is missing (expected shape {list(shape)}, the checkpoint holds "
                f"{len(self._names)} other tensors); it does not belong to this config: download it again"
            )
        got = self._source.shape(name)
        if got != tuple(shape):
            raise LoadError(
                f"tensor {name!r} has shape {list(got)}, the config asks for {list(shape)}: "
                "config and weights do not belong together"
            )

    def finish(self) -> None:
        """LoadError naming the tensors nobody took; rotary tables and an unused (tied) head are allowed."""
        left = sorted(n for n in self._names - self._taken if not _HARMLESS.search(n))
        if left:
            shown = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
            raise LoadError(
                f"{len(left)} tensor(s) of the checkpoint have no place in the model: {shown}; "
                "it is a variant forerun does not know, and dropping them would change its answers"
            )
