"""Where a page goes: refused at once if it cannot be written there, before anything is computed for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from forerun.core.errors import SpecError


def check_page(out: Path, suffixes: Sequence[str]) -> None:
    """SpecError unless a file can be written at `out`, and its name ends as one of these."""
    if out.suffix.lower() not in suffixes:
        raise SpecError(f"the page's name must end with {' or '.join(suffixes)}, got {str(out)!r}")
    if out.is_dir():
        raise SpecError(f"{out} is a folder: give a file for the page, as {out / ('page' + suffixes[0])}")
    above = next(folder for folder in (out.parent, *out.parent.parents) if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise SpecError(f"the page cannot be written to {out}: {above} is not a folder that can be written to")
