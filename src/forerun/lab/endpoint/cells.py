"""One model at one concurrency: times of the answers that came, and how much there was of everything.

Times are the client's and tokens the server's. Requests that failed are counted and stand in no time; throughput is
that of blocks in which nothing failed and nothing was asked twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from forerun.lab.endpoint.part import Part
from forerun.lab.endpoint.prices import Price
from forerun.lab.endpoint.reply import Reply
from forerun.lab.endpoint.speculation import speculation
from forerun.lab.looping import counted


def cell(parts: Sequence[Part], price: Price | None) -> dict[str, Any]:
    """One arm at one concurrency. Requests that failed are counted, and stand in no time."""
    records = [record for part in parts for record in part.records]
    replies = [reply for part in parts for reply in part.replies]
    known = all(reply.tokens is not None for reply in replies)
    tokens = sum(reply.tokens or 0 for reply in replies) if known else None
    usages = [reply.usage for reply in replies if reply.usage is not None]
    return {
        "requests": len(records),
        "failed": sum(record.reply is None for record in records),
        "failures": dict(Counter(record.kind for record in records if record.reply is None)),
        "retried": sum(record.attempts > 1 for record in records),
        "tokens": tokens,
        "counted_by": _counted_by(replies),
        "events": sum(len(reply.events) for reply in replies),
        "bursts": sum(len(reply.bursts) for reply in replies),
        "tokens_per_burst": _over(tokens, sum(len(reply.bursts) for reply in replies)),
        "prompt_tokens": sum(usage.prompt for usage in usages),
        "cached_prompt_tokens": sum(usage.cached for usage in usages),
        "ttft_ms": spread([1e3 * reply.first_s for reply in replies if reply.first_s is not None]),
        "ms_per_token": spread([ms for reply in replies if (ms := reply.ms_per_token) is not None]),
        "burst_gap_ms": spread(*_split([gap for reply in replies for gap in reply.gaps])),
        "latency_ms": spread([1e3 * reply.latency_s for reply in replies]),
        "tokens_per_s": spread([1e3 / ms for reply in replies if (ms := reply.ms_per_token) is not None]),
        **_throughput(parts),
        "retokenised": _sum([reply.retokenised for reply in replies]),
        "looping": counted([reply.repeats for reply in replies]),
        "cost": _cost(replies, price),
        "speculation": speculation(parts, replies, tokens),
        "waited_for_idle_s": round(max(part.quiet["waited_s"] for part in parts), 3),
        "idle_by": sorted({part.quiet["by"] for part in parts}),
        "dirty_blocks": sum(not part.quiet["clean"] for part in parts),
        "client_busy": round(max(part.cpu_s / part.wall_s for part in parts), 3),
    }


def _counted_by(replies: Sequence[Reply]) -> str:
    if not all(reply.tokens is not None for reply in replies):
        return "nobody"
    return "usage of every event" if all(reply.counted for reply in replies if reply.events) else "usage"


def _throughput(parts: Sequence[Part]) -> dict[str, Any]:
    """Over blocks in which nothing failed: tokens of all answers a second, the best second, requests in flight."""
    smooth = [part for part in parts if part.smooth and part.tokens is not None]
    wall = sum(part.wall_s for part in smooth)
    busy = sum(reply.latency_s for part in smooth for reply in part.replies)
    return {
        "smooth_blocks": len(smooth),
        "blocks": len(parts),
        "total_tokens_per_s": _over(sum(part.tokens or 0 for part in smooth), wall),
        "peak_tokens_per_s": max((round(peak(part), 4) for part in smooth), default=None),
        "in_flight": _over(busy, wall),
    }


def peak(part: Part) -> float:
    """Tokens a second in the busiest stretch of about a second.

    The block is cut into equal stretches, the shortest of at least a second: so the peak is never below the mean.
    """
    count = max(1, int(part.wall_s))
    width = part.wall_s / count
    sums = [0.0] * count
    for record in part.records:
        for time, tokens in record.reply.arrivals() if record.reply else ():
            sums[min(count - 1, int((record.start_s + time) / width))] += tokens
    return max(sums) / width


def spread(values: Sequence[float], weights: Sequence[float] | None = None) -> dict[str, Any] | None:
    """Median, 5 % and 95 % of values, each with its weight; None of none."""
    if not values:
        return None
    whole = [1.0] * len(values) if weights is None or not any(weights) else weights
    median_, p05, p95 = (_quantile(values, whole, part) for part in (0.5, 0.05, 0.95))
    return {"median": round(median_, 4), "p05": round(p05, 4), "p95": round(p95, 4), "of": len(values)}


def _quantile(values: Sequence[float], weights: Sequence[float], part: float) -> float:
    """The least value with at least `part` of the weight at or below it; between two, the middle."""
    pairs = sorted(zip(values, weights, strict=True))
    goal, held = part * sum(weights), 0.0
    for i, (value, weight) in enumerate(pairs):
        held += weight
        if abs(held - goal) < 1e-9 * max(1.0, goal) and i + 1 < len(pairs):
            return (value + pairs[i + 1][0]) / 2
        if held > goal:
            return value
    return pairs[-1][0]


def _split(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [value for value, _ in pairs], [weight for _, weight in pairs]


def _over(top: float | None, bottom: float) -> float | None:
    return round(top / bottom, 4) if top is not None and bottom > 0 else None


def _sum(values: Sequence[int | None]) -> int | None:
    return sum(value or 0 for value in values) if values and None not in values else None


def _cost(replies: Sequence[Reply], price: Price | None) -> dict[str, Any] | None:
    """Of the answers that came; None without a price or without the server's count."""
    if price is None or not replies or any(reply.usage is None for reply in replies):
        return None
    usages = [reply.usage for reply in replies if reply.usage is not None]
    return {
        "currency": price.currency,
        "total": round(sum(map(price.cost, usages)), 9),
        "per_request": round(sum(map(price.cost, usages)) / len(usages), 9),
        "of_rejected": round(sum(map(price.of_rejected, usages)), 9),
        "rejected_prediction_tokens": sum(usage.rejected_prediction for usage in usages),
        "accepted_prediction_tokens": sum(usage.accepted_prediction for usage in usages),
    }
