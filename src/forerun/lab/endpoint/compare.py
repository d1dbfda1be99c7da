"""Two arms, prompt by prompt: the first one's time over the second one's, beside the noise floor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from forerun.lab.endpoint.part import Part
from forerun.lab.endpoint.reply import Reply
from forerun.lab.looping import loops
from forerun.lab.stats import Interval, calm, ratio, verdict

UNEQUAL = "unequal answers"
"""In the place of a verdict, where answers differ in length."""
ALIKE = (0.95, 1.05)  # ratio of lengths that are as good as equal
Place = tuple[str, str]
"""Unit and prompt."""
Ratios = Mapping[str, Interval | None]
"""By measure; None where the arms have no prompt in common."""


def _ms_per_token(replies: Sequence[Reply]) -> float | None:
    told = [reply.after_first for reply in replies]
    tokens = sum(count or 0.0 for count in told)
    seconds = sum(reply.decode_s for reply in replies)
    return 1e3 * seconds / tokens if tokens > 0 and seconds > 0 and None not in told else None


def _ttft(replies: Sequence[Reply]) -> float | None:
    told = [reply.first_s for reply in replies]
    return None if None in told else sum(seconds or 0.0 for seconds in told)


def _latency(replies: Sequence[Reply]) -> float | None:
    return sum(reply.latency_s for reply in replies)


MEASURES: Mapping[str, Callable[[Sequence[Reply]], float | None]] = {
    "ms_per_token": _ms_per_token,
    "ttft": _ttft,
    "latency": _latency,
}
"""Times of a conversation that are compared; None where they cannot be said."""


def ratios(first: Sequence[Part], second: Sequence[Part]) -> Ratios:
    """By measure: the first one's time over the second one's, prompt by prompt."""
    return {name: _ratio(_pairs(first, second, of)) for name, of in MEASURES.items()}


def _ratio(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    return ratio(pairs) if pairs else None


def _pairs(
    first: Sequence[Part], second: Sequence[Part], of: Callable[[Sequence[Reply]], float | None], looping: bool = True
) -> list[tuple[float, float]]:
    """For each prompt: medians over the rounds in which both answered the same turns of it, their turns together; on
    wish without those in which an answer repeats itself."""
    one, other = _conversations(first), _conversations(second)
    by_prompt: dict[str, list[tuple[float, float]]] = {}
    for place, replies in one.items():
        match = other.get(place, {})
        both = [*replies.values(), *match.values()]
        if replies.keys() == match.keys() and (looping or not any(loops([reply.repeats]) for reply in both)):
            a, b = of(list(replies.values())), of(list(match.values()))
            if a is not None and b is not None and a > 0 and b > 0:
                by_prompt.setdefault(place[1], []).append((a, b))
    return [(median(a for a, _ in pairs), median(b for _, b in pairs)) for pairs in by_prompt.values()]


def _conversations(parts: Sequence[Part]) -> dict[Place, dict[int, Reply]]:
    """Replies by turn, of each (unit, prompt)."""
    found: dict[Place, dict[int, Reply]] = {}
    for part in parts:
        for record in part.records:
            if record.reply is not None:
                found.setdefault((part.key, record.prompt), {})[record.turn] = record.reply
    return found


def noise_figures(found: Interval | None) -> dict[str, Any] | None:
    """A noise floor, and whether the server was calm."""
    return None if found is None else {**found.to_json(), "calm": calm(found)}


def compared(first: Sequence[Part], second: Sequence[Part], noise: Ratios) -> dict[str, Any]:
    """By measure, the ratio and what it says beside the noise; how many answers are the same text, and their lengths.
    Of whole answers that are no equal work nothing is said: the shorter one ends sooner."""
    one, other = _conversations(first), _conversations(second)
    both = [(replies[turn], other[place][turn]) for place, replies in one.items() if place in other
            for turn in replies if turn in other[place]]  # fmt: skip
    said: dict[str, Any] = {}
    for name, found in ratios(first, second).items():
        floor = noise[name]
        told: str | None = None if found is None or floor is None else verdict(found, floor)
        if name == "latency" and not equal_work(both):
            told = UNEQUAL
        said[name] = None if found is None else {**found.to_json(), "verdict": told}
    same = sum(a.digest == b.digest for a, b in both)
    without: dict[str, Any] | None = None
    if any(loops([reply.repeats]) for pair in both for reply in pair):
        rest = _ratio(_pairs(first, second, _ms_per_token, looping=False))
        without = {"ms_per_token": rest and rest.to_json()}
    return {
        **said,
        "same_text": same,
        "answers": len(both),
        "tokens": _lengths(both),
        "without_looping": without,
    }


def equal_work(both: Sequence[tuple[Reply, Reply]]) -> bool:
    """Whether two arms' answers are of one length, but for ALIKE; where the server does not count, only the same texts
    are."""
    lengths = _lengths(both)
    if lengths is None:
        return all(a.digest == b.digest for a, b in both)
    return ALIKE[0] < lengths[0] / lengths[1] < ALIKE[1] if all(lengths) else lengths[0] == lengths[1]


def _lengths(both: Sequence[tuple[Reply, Reply]]) -> tuple[float, float] | None:
    """Mean tokens of either arm's answers; None where they are not counted."""
    pairs = [(a.tokens, b.tokens) for a, b in both if a.tokens is not None and b.tokens is not None]
    if not both or len(pairs) < len(both):
        return None
    return sum(a for a, _ in pairs) / len(pairs), sum(b for _, b in pairs) / len(pairs)
