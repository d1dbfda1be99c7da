"""From figures to a verdict: what broke, what proves nothing, and what rounding explains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from forerun.lab.bench import AGAIN
from forerun.lab.lossless.sampled import PLANTED

Kind = Literal["broken", "unproven", "note"]
Finding = tuple[Kind, str, str]
"""How bad, in which part, what."""

ROUNDING, ROUNDING_HALF = 1e-2, 0.5
"""Differences of a row beyond which rounding is no explanation, in float32 and in half precision."""
CHANCE = 1e-3  # a calibration less likely than this is none
POWER = 0.5  # the part of the planted tests that must be below 0.05


def findings(figures: Mapping[str, Any]) -> list[dict[str, str]]:
    """Everything worth saying about the parts that were run, the worst first."""
    found: list[Finding] = []
    for part, look in (("identity", _identity), ("rows", _rows), ("exact", _exact), ("sampled", _sampled)):
        if part in figures:
            found += look(figures)
    kinds: tuple[Kind, ...] = ("broken", "unproven", "note")
    return [
        {"kind": kind, "part": part, "text": text}
        for kind, part, text in sorted(found, key=lambda f: kinds.index(f[0]))
    ]


def overall(found: Sequence[Mapping[str, str]]) -> str:
    """`lossless`; or, with the first reason, `broken` or `unproven`."""
    for kind in ("broken", "unproven"):
        reasons = [f"{finding['part']}: {finding['text']}" for finding in found if finding["kind"] == kind]
        if reasons:
            more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            return f"{kind}: {reasons[0]}{more}"
    return "lossless"


def _identity(figures: Mapping[str, Any]) -> Iterator[Finding]:
    exact_rows = figures["runtime"] == "native"
    for name, samplings in figures["identity"]["arms"].items():
        for sampling, arm in samplings.items():
            real = [d for d in arm["divergences"] if exact_rows or not d["near_tie"]]
            near = len(arm["divergences"]) - len(real)
            if real:
                yield "broken", "identity", f"{name}, {sampling}: {len(real)} of {arm['of']} answers are other texts"
            if near:
                yield (
                    "note",
                    "identity",
                    f"{name}, {sampling}: {near} of {arm['of']} answers part at near-ties (rounding)",
                )
        if name != AGAIN and samplings:
            yield from _volume("identity", name, samplings.values())
    for name, samplings in figures["identity"]["excluded"].items():
        text = f"{name}: keeps the distribution and not the text ({', '.join(samplings)}), see sampled and exact"
        yield "note", "identity", text


def _volume(part: str, name: str, arms: Any) -> Iterator[Finding]:
    """Failure case 154: agreement of a drafter that guessed nothing, or was never right or never wrong."""
    drafted, accepted = (sum(arm[count] for arm in arms) for count in ("drafted", "accepted"))
    if not drafted or not accepted:
        yield "unproven", part, f"{name}: proves nothing, of {drafted} drafted tokens {accepted} stood"
    elif accepted == drafted:
        yield "note", part, f"{name}: all {drafted} drafted tokens stood: refusing was not tried"


def _rows(figures: Mapping[str, Any]) -> Iterator[Finding]:
    half = figures["dtype"] in ("float16", "bfloat16")
    limit = 0.0 if figures["runtime"] == "native" else ROUNDING_HALF if half else ROUNDING
    for name, samplings in figures["rows"]["arms"].items():
        for sampling, arm in samplings.items():
            other = arm["compared"] - arm["equal"]
            if other:
                kind: Kind = "broken" if arm["largest"] > limit or not limit else "note"
                text = f"{name}, {sampling}: {other} of {arm['compared']} rows differ, by at most {arm['largest']:.2g}"
                yield kind, "rows", text
        if name != AGAIN:
            yield from _volume("rows", name, samplings.values())


def _exact(figures: Mapping[str, Any]) -> Iterator[Finding]:
    exact = figures["exact"]
    for name, verify in exact["verifiers"].items():
        if verify["largest_deviation"] > exact["limit"]:
            yield "broken", "exact", f"verifier {name} deviates by {verify['largest_deviation']:.2g}"
        if not verify["accepted"]:
            yield "unproven", "exact", f"verifier {name}: nothing stood"
    for fault, planted in exact["planted"].items():
        if not planted["caught"]:
            yield "unproven", "exact", f"the planted fault {fault!r} was not noticed"


def _sampled(figures: Mapping[str, Any]) -> Iterator[Finding]:
    sampled = figures["sampled"]
    level = sampled["level"]
    for name, arm in sampled["arms"].items():
        if arm.get("holm", 1.0) < level:
            yield "broken", "sampled", f"{name}: another distribution (adjusted p = {arm['holm']:.2g})"
        if name not in (AGAIN, PLANTED) and not arm["accepted"]:
            kind: Kind = "note" if arm["promises_text"] else "unproven"  # the text itself proves it, or nothing else
            yield kind, "sampled", f"{name}: proves nothing here, of {arm['drafted']} drafted tokens none stood"
    if sampled["arms"][AGAIN]["pvalue"] < CHANCE:
        yield "unproven", "sampled", "plain decoding seems to differ from itself"
    if sampled["arms"][PLANTED]["pvalue"] >= 0.05:
        yield "unproven", "sampled", "the planted lossy rule was not noticed: give more --answers"
    calibrations = {"toy plain": sampled["toy"]["plain"], "toy speculative": sampled["toy"]["speculative"]}
    if sampled["calibration"]:
        calibrations["plain on this model"] = sampled["calibration"]
    for name, found in calibrations.items():
        if found["pvalue"] < CHANCE:
            yield "unproven", "sampled", f"{name}: p-values are not uniform (distance {found['distance']:.2f})"
    if sampled["toy"]["typical"]["below_0.05"] < POWER:
        yield "unproven", "sampled", "the test does not see a lossy rule on the toy"
