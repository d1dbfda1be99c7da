"""Who computes on how many CPU threads: the native runtime's own pool, and torch's beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from forerun.core.errors import SpecError
from forerun.native import ext
from forerun.targets.choice import Choice


def use_threads(count: int | None, choice: Choice) -> None:
    """Compute on so many CPU threads from now on; None leaves what is.

    On the native runtime torch gets one: what it does there is small, and threads of its own that wait for more, which
    they do at full speed, would take the cores from the forwards. The next torch runtime gets back what torch had.
    """
    if count is not None and count < 1:
        raise SpecError(f"threads must be a whole number from 1 up, got {count}")
    if choice.runtime == "native":
        _TORCH.lend()
        if count:
            ext.set_threads(count)
    else:
        torch.set_num_threads(count or _TORCH.own())


class _TorchThreads:
    """How many threads torch had before the native runtime left it one."""

    def __init__(self) -> None:
        self._before = 1

    def lend(self) -> None:
        """Leave torch one."""
        self._before = self.own()
        torch.set_num_threads(1)

    def own(self) -> int:
        """As many as torch has, or had before; what was set since then counts."""
        now = torch.get_num_threads()
        return self._before if now == 1 else now


_TORCH = _TorchThreads()


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """A block in which torch computes on so many threads; None is as many as it had before the native runtime."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or _TORCH.own())
    try:
        yield
    finally:
        torch.set_num_threads(before)
