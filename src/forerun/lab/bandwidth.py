"""How fast this machine reads memory: the limit that plain decoding runs against.

Two buffers: one as large as the weights, which sees the caches that the weights see, and one larger than the caches.
The native extension reads with all threads of its pool, with the widest loads and in the way that is fastest here;
without it torch sums a buffer, which on few cores reads about as fast. Others who use the machine only take away from
it, so the best of the readings is what counts; and where a model reads faster still, what it read is the bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import cast

from forerun.lab.machine import free_memory, last_level_cache
from forerun.native import ext

SECONDS = 0.3  # of each reading; bursts of other guests are shorter
_LEAST, _MOST = 256 << 20, 1 << 30  # bytes of the buffer that no cache holds
_LARGEST = 4 << 30  # bytes of the buffer that stands for the weights: larger ones read no differently
Read = Callable[[int, float], float]
"""Bytes to read and for how long -> bytes per second."""


def reader() -> Read:
    """The fastest way to read memory here."""
    module = ext.extension()
    return torch_read if module is None else cast(Read, module.probe)


def torch_read(nbytes: int, seconds: float) -> float:
    """Bytes per second of the fastest sum over `nbytes` within about `seconds`, at least three of them."""
    import torch

    values = torch.ones(max(1, nbytes // 8), dtype=torch.int64)  # whole numbers: no order of additions to keep
    best, turns, end = float("inf"), 0, perf_counter() + seconds
    while turns < 3 or perf_counter() < end:
        start = perf_counter()
        values.sum()
        best = min(best, perf_counter() - start)
        turns += 1
    return values.numel() * 8 / best


@dataclass(slots=True)
class Bandwidth:
    """Readings of both buffers, taken whenever `measure` is called."""

    weight_bytes: int
    read: Read
    cache_bytes: int | None = field(default_factory=last_level_cache)
    like_weights: list[float] = field(default_factory=list)
    """Bytes per second of each reading."""
    beyond_caches: list[float] = field(default_factory=list)

    @property
    def weights_fit(self) -> bool | None:
        """Whether the last-level cache is as large as the weights; None where its size is not known."""
        return None if self.cache_bytes is None else self.weight_bytes <= self.cache_bytes

    def measure(self) -> None:
        """One reading of each; buffers stay below half of the free memory."""
        free = (free_memory() or 2 * _LARGEST) // 2
        self.like_weights.append(self.read(max(64, min(self.weight_bytes, _LARGEST, free)), SECONDS))
        large = min(max(_LEAST, 4 * (self.cache_bytes or 0)), _MOST, free)
        self.beyond_caches.append(self.read(large, SECONDS))

    def share(self, nbytes: float, seconds: float) -> float:
        """Part of the bandwidth that reading `nbytes` in `seconds` takes: 1 where it is faster than every reading, for
        then it is the bandwidth itself."""
        return min(1.0, nbytes / seconds / max(self.like_weights))

    def to_json(self) -> dict[str, object]:
        """In 10^9 bytes a second: the best ones, and all readings."""
        return {
            "like_weights": round(max(self.like_weights) / 1e9, 3),
            "beyond_caches": round(max(self.beyond_caches) / 1e9, 3),
            "readings": {
                "like_weights": [round(value / 1e9, 3) for value in self.like_weights],
                "beyond_caches": [round(value / 1e9, 3) for value in self.beyond_caches],
            },
        }
