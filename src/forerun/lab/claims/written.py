"""A number as it stands in a text, and whether a value, rounded to the digits that are written, is that number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from forerun.core.errors import SpecError
from forerun.lab.claims import units
from forerun.lab.claims.units import Unit

CLOSERS = r"(?:[*_`]+|</[A-Za-z][\w-]*>)*"
"""What may stand between a number and the comment behind it: ends of bold, of code, of a tag."""

_END = re.compile(
    rf"(?<![^\W_])(?<![.,])(?P<sign>[+\-−–]?)(?P<digits>[0-9][0-9,.]*(?:[eE][+\-−]?[0-9]+)?)"
    rf"{CLOSERS}(?P<unit>(?:\s?{units.TEXT})?){CLOSERS}$"
)
_NUMBER = re.compile(r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:[eE][+\-−]?[0-9]{1,3})?")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")  # as files hold them, too
_NO_SIGN = re.compile(r"(?:[\w%)\]]|-->|</[\w-]+>)$")  # behind these a dash is a hyphen, or the middle of a range
_SPLIT = re.compile(r"[0-9][ \u00a0\u202f\u2009'’]$")  # before three digits: thousands, but not as we write them
_ROUNDING = Fraction(1, 1 << 50)  # what float arithmetic before formatting may have moved, relative to the value


@dataclass(frozen=True, slots=True)
class Number:
    """A number that was read from a text."""

    shown: str
    """As written, unit included."""
    value: Fraction
    places: int
    """Digits after the point; below 0 for those that an exponent leaves open."""
    sign: str
    unit: Unit | None
    lead: str
    """The text before it."""

    def stands_for(self, value: Fraction, exact: bool) -> bool:
        """Whether `value`, in this number's unit, rounds to it; at an exact half both neighbours do.

        `exact` is for values that no float arithmetic may have moved before they were written.
        """
        wrong_sign = (self.sign == "-" and value > 0) or (self.sign == "+" and value < 0)
        slack = Fraction(0) if exact else abs(value) * _ROUNDING
        return not wrong_sign and abs(self.value - value) <= Fraction(10) ** -self.places / 2 + slack

    def rounded(self, value: Fraction) -> str:
        """`value` with as many digits as this number has, for messages."""
        return f"{float(value):,.{max(0, self.places)}f}"


def number(before: str, after: str = "") -> Number | None:
    """The number that `before` ends with, its unit there or at the beginning of `after`; None if there is none.

    SpecError for digits that are no number, such as thousands that are wrongly separated.
    """
    match = _END.search(before)
    if not match:
        return None
    sign, digits, lead = match["sign"], match["digits"], before[: match.start()]
    if sign and _NO_SIGN.search(lead):
        lead, sign = lead + sign, ""
    sign = sign and ("+" if sign == "+" else "-")
    if not _NUMBER.fullmatch(digits) or (_SPLIT.search(lead) and re.match(r"[0-9]{3}(?![0-9])", digits)):
        raise SpecError(f"{(lead + digits)[-12:].strip()!r} is no number: write 1234 or 1,234, and 0.5 with a point")
    plain = Decimal(digits.replace(",", "").replace("−", "-"))
    exponent = plain.as_tuple().exponent
    assert isinstance(exponent, int)
    value = Fraction(plain) * (-1 if sign == "-" else 1)
    behind = re.sub(rf"^{CLOSERS}", "", after)
    return Number(
        shown=f"{sign}{digits}{match['unit']}",
        value=value,
        places=-exponent,
        sign=sign,
        unit=units.said(match["unit"] + behind),
        lead=lead,
    )


def plain(text: str) -> Fraction | None:
    """A plain decimal number, exactly; None for any other text. Its length is bounded before anything is computed:
    `1e999999999` is short to write and long to hold."""
    return Fraction(text) if _DECIMAL.fullmatch(text) else None
