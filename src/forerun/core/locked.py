"""A lock between processes: whoever wants the same file made waits, and then finds it made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of that file, waiting for it; where there are no locks, two do the work twice, unharmed."""
    with path.open("wb") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        except (ImportError, OSError):
            pass
        yield
