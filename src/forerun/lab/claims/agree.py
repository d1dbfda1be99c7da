"""One claim and the value that it is about: whether they agree.

A number agrees if the value, turned into the unit that is written, rounds to the digits that are written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from forerun.core.errors import SpecError
from forerun.lab.claims import paths, units
from forerun.lab.claims.notation import Claim
from forerun.lab.claims.written import CLOSERS, number, plain

_ABOUT = " \u00a0~≈$€£"  # may stand before a number that is an element's whole text


def wrong(claim: Claim, whole: Mapping[str, Any], where: str) -> str | None:
    """What is wrong with a claim about a results file, in words; None if nothing is. `where` names the file."""
    try:
        steps = paths.steps_of(claim.path)
        return _against(claim, paths.follow(whole, steps), steps, f"{where} {claim.path}")
    except SpecError as error:
        return f"{where} {claim.path}: {error}"


def _against(claim: Claim, value: Any, steps: Sequence[paths.Step], where: str) -> str | None:
    if claim.value is not None and not _is(claim.value, value):
        return f"has value={claim.value!r}, {where} is {value!r}"
    if isinstance(value, bool):
        return _against_truth(claim, value, where)
    if isinstance(value, str):
        return _against_text(claim, value, where)
    if not isinstance(value, int | float):
        return f"{where} is {'null: it was not measured' if value is None else 'no single value'}, not a number"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{where} is {value}: no text can say that"
    got = number(claim.before, claim.after)
    if got is None or (claim.whole and got.lead.strip(_ABOUT)):
        return f"no number right before the claim (got {_last(claim, 2)!r}): {where} is {value}"
    true = units.turned(Fraction(str(value)), _held(claim.unit, steps), got.unit)
    if got.stands_for(true, exact=isinstance(value, int)):
        return None
    return f"claims {got.shown}, {where} is {got.rounded(true)} (in the file: {value})"


def _held(said: str, steps: Sequence[paths.Step]) -> units.Unit | None:
    """The unit that the file holds; SpecError if the text says another than the value's own key."""
    keys = [step for step in steps if isinstance(step, str)]
    if not said:
        return units.held(keys)
    unit, own = units.declared(said), units.of_key(keys[-1]) if keys else None
    if own and ((own.kind, own.scale) != (unit.kind, unit.scale) or (own.per and unit.per not in ("", own.per))):
        raise SpecError(f"unit differs: the text says that the file holds {said}, the key {keys[-1]!r} says otherwise")
    return replace(unit, per=unit.per or own.per) if own else unit


def _against_truth(claim: Claim, value: bool, where: str) -> str | None:
    got = _last(claim, 1)
    if re.sub(r"^\W+", "", got).lower() in (("yes", "true") if value else ("no", "false")):
        return None
    return f"claims {got!r}, {where} is {'yes' if value else 'no'}"


def _against_text(claim: Claim, value: str, where: str) -> str | None:
    wanted = " ".join(value.split())
    got = _last(claim, len(wanted.split()))
    if got == wanted or (not claim.whole and re.search(rf"(?<!\w){re.escape(wanted)}$", got)):
        return None
    return f"claims {got!r}, {where} is the text {value!r}"


def _last(claim: Claim, words: int) -> str:
    """The last words of what stands before a claim; all of an element's."""
    text = re.sub(rf"{CLOSERS}$", "", claim.before).split()
    return " ".join(text if claim.whole else text[-words:])


def _is(text: str, value: Any) -> bool:
    """Whether an element's `value` is the file's, to the last bit."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return text == (str(value).lower() if isinstance(value, bool) else str(value))
    given = plain(text)
    return given is not None and given == plain(str(value))
