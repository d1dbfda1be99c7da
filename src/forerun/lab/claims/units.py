"""Units: as a text says them behind a number, and as a results file says them in its keys.

`12.4 ms/token`, `97 %`, `1.2 GB/s` on one side; `ms_per_token`, `share`, `bandwidth_gb_s` on the other. A number is
turned from the file's unit into the text's, exactly, or it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from forerun.core.errors import SpecError


@dataclass(frozen=True, slots=True)
class Unit:
    """What is counted, how much one of it is, and for each of what ("s": a rate)."""

    kind: str
    """"time" (in seconds), "bytes", or "number": ratios, shares and counts."""
    scale: Fraction
    per: str = ""


_PER = ("token", "step", "pass", "forward", "prompt", "answer", "request", "row", "node", "second", "s")
_TEXT = {
    **dict.fromkeys(("s", "second", "seconds"), ("time", Fraction(1))),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), ("time", Fraction(1, 10**3))),
    **dict.fromkeys(("us", "µs", "μs", "microsecond", "microseconds"), ("time", Fraction(1, 10**6))),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), ("time", Fraction(1, 10**9))),
    **dict.fromkeys(("minute", "minutes"), ("time", Fraction(60))),
    **dict.fromkeys(("hour", "hours"), ("time", Fraction(3600))),
    **dict.fromkeys(("byte", "bytes"), ("bytes", Fraction(1))),
    **{name: ("bytes", Fraction(1000**n)) for n, name in enumerate(("kB", "MB", "GB", "TB"), 1)},
    **{name: ("bytes", Fraction(1024**n)) for n, name in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)},
    **dict.fromkeys(("%", "percent"), ("number", Fraction(1, 100))),
    **dict.fromkeys(("x", "×", "token", "tokens", "request", "requests"), ("number", Fraction(1))),
}
_KEY = {name.lower(): unit for name, unit in _TEXT.items() if name not in ("x", "×")} | {
    "sec": _TEXT["s"], "pct": _TEXT["%"], "tok": _TEXT["tokens"]
}  # fmt: skip
_PURE = frozenset({
    "share", "fraction", "ratio", "speedup", "tau", "alpha", "acceptance", "perplexity", "count", "number", "n", "of",
    "steps", "passes", "rows", "prompts", "samples", "rounds", "nodes", "layers", "depth", "drafted", "accepted",
    "same",
})  # fmt: skip

_PERS = "|".join(_PER)
TEXT = (
    rf"(?:{'|'.join(map(re.escape, sorted(_TEXT, key=len, reverse=True)))})"
    rf"(?:\s?/\s?(?:{_PERS})|\s(?:per|a|an|each)\s(?:{_PERS}))?(?!\w)"
)
"""A unit as a text says it, as a regular expression."""


def said(text: str) -> Unit | None:
    """The unit that a text begins with, a space before it or not; None if it begins with none."""
    match = re.match(rf"(?:\r\n|\s)?({TEXT})", text)
    if not match:
        return None
    base, _, per = re.sub(r"\s?/\s?|\s(?:per|a|an|each)\s", "/", match[1]).partition("/")
    return Unit(*_TEXT[base], _each(per))


def declared(text: str) -> Unit:
    """The unit that a claim says its file holds; SpecError for one that is not known."""
    unit = said(text) if re.fullmatch(TEXT, text) else None
    if unit is None:
        raise SpecError(f"unknown unit {text!r} (allowed: {', '.join(_TEXT)}, and these /token, /s and so on)")
    return unit


def held(keys: Iterable[str]) -> Unit | None:
    """The unit that the keys of a path name: that of the last key which names one. None if none does."""
    return next((unit for key in reversed(tuple(keys)) if (unit := of_key(key))), None)


def of_key(key: str) -> Unit | None:
    """The unit in a key's name, as in `first_s`, `ms_per_token`, `bandwidth_gb_s`, `speedup`; None if it names none."""
    if "/" in key and re.fullmatch(TEXT, key):
        return said(key)
    words = re.split(r"[_\s]+", key.lower())
    for word in ("per", "by"):
        if word in words[1:-1]:
            at = words.index(word, 1)
            per = _each(words[at + 1]) if word == "per" else ""
            if words[at - 1] in _KEY:
                return Unit(*_KEY[words[at - 1]], per)
            return Unit("number", Fraction(1), per) if per else None
    rate = len(words) > 1 and words[-1] == "s" and words[-2] in _KEY and _KEY[words[-2]][0] != "time"
    if rate and words[-2] != "token":  # `tokens_s` is a rate, `first_token_s` a time
        return Unit(*_KEY[words[-2]], "s")
    if words[-1] in _KEY:
        return Unit(*_KEY[words[-1]])
    if words[0] in ("ms", "us", "ns"):
        return Unit(*_KEY[words[0]])
    return Unit("number", Fraction(1)) if _PURE.intersection(words) else None


def turned(value: Fraction, held: Unit | None, said: Unit | None) -> Fraction:
    """A file's value in the unit that a text says; as it is where the text says none. SpecError if that cannot be."""
    if said is None:
        return value
    if held is None:
        if said.kind != "number" or said.per:
            raise SpecError(
                f"unit unknown: the text says {_name(said)}, no key of the path names one; "
                "say what the file holds behind the path, as `in ms`"
            )
        return value / said.scale
    if held.kind != said.kind or (held.per != said.per and (said.per or held.per == "s")):
        raise SpecError(f"unit differs: the text says {_name(said)}, the key {_name(held)}")
    return value * held.scale / said.scale


def _each(word: str) -> str:
    """What a rate is per, in one spelling."""
    return {"second": "s", "seconds": "s", "sec": "s", "passes": "pass"}.get(word, re.sub(r"(?<=[^s])s$", "", word))


def _name(unit: Unit) -> str:
    kind = {"time": "a time", "bytes": "bytes", "number": "a number"}[unit.kind]
    return f"{kind} per {unit.per}" if unit.per else kind
