"""Everything forerun raises on purpose.

    ForerunError
    ├── SpecError         a request or an option that cannot be meant: unknown name, wrong type, out of range
    ├── LoadError         a file, folder or download that cannot be used
    ├── CapacityError     more memory or context than there is
    ├── LossyError        a pairing that would change the target's text, asked for without saying so
    └── BrokenInvariant   a fault of ours (or of a plugged-in part): please report it

A message says what was wrong, what was got, what is allowed and what to do, in one line.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class ForerunError(Exception):
    """Base of all expected failures; the command line prints one line and exits 1."""


class SpecError(ForerunError, ValueError):
    """A request or option that cannot be meant."""


class LoadError(ForerunError):
    """A model, tokenizer or download that cannot be used."""


class CapacityError(ForerunError):
    """More memory, context or disk than there is."""


class LossyError(ForerunError):
    """A combination that would change what the target says."""


class BrokenInvariant(ForerunError):
    """Something that must hold did not: a fault in forerun or in a plugged-in part."""


def said(error: Exception) -> str:
    """An exception in a line: what kind it is, unless it is one of ours, and its message."""
    kind = "" if isinstance(error, ForerunError) else type(error).__name__
    return ": ".join(filter(None, (kind, " ".join(str(error).split())))) or type(error).__name__


def unknown(kind: str, got: object, allowed: Iterable[str]) -> SpecError:
    """The error for a name outside a known set, with the nearest name suggested."""
    names = sorted(allowed)
    near = get_close_matches(str(got), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return SpecError(f"unknown {kind} {got!r}{hint} (allowed: {', '.join(names)})")
