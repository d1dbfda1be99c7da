"""What a measured curve says: as JSON values, and as a chart for the terminal."""

from __future__ import annotations

from statistics import median

from forerun.core.curve import Point
from forerun.lab.bandwidth import Bandwidth
from forerun.lab.curve import Grid, Samples
from forerun.lab.subject import Subject

_BAR = 36  # characters of the longest bar


def figures(subject: Subject, grid: Grid, samples: Samples, bandwidth: Bandwidth) -> dict[str, object]:
    """Every figure by name; `ms_by_rows` and `bandwidth_share` are of the first batch and context that were given."""
    batch, context = grid.points[0].batch, grid.points[0].context
    curve = samples.curve()
    return {
        "model": subject.target.spec.name,
        "runtime": subject.runtime,
        "weights": subject.weights,
        "formats": dict(subject.formats),
        "kv": subject.kv,
        "isa": subject.isa,
        "threads": subject.threads,
        "feed": grid.feed,
        "repeats": grid.repeats,
        "batch": batch,
        "context": context,
        "ms_by_rows": {str(rows): ms(seconds) for rows, seconds in curve.by_rows(batch, context).items()},
        "bandwidth_share": share(subject, samples, bandwidth, Point(1, batch, context)),
        "bandwidth_gb_s": bandwidth.to_json(),
        "weight_bytes": subject.weight_bytes,
        "kv_bytes_per_token": subject.token_bytes,
        "cache_bytes": bandwidth.cache_bytes,
        "weights_fit_cache": bandwidth.weights_fit,
        "points": [_point(point, first_of(grid, point), samples) for point in grid.points],
        "left_out": [tuple(point) for point in grid.left_out],
        "curve": curve.to_json(),
    }


def first_of(grid: Grid, point: Point) -> Point:
    """What a point is compared with: the fewest rows and the smallest batch at its context."""
    return min(other for other in grid.points if other.context == point.context)


def share(subject: Subject, samples: Samples, bandwidth: Bandwidth, point: Point) -> float | None:
    """Part of the memory bandwidth that a forward of one row reaches; None where it was not measured."""
    if point not in samples.seconds:
        return None
    read = subject.weight_bytes + subject.token_bytes * point.batch * point.context
    return round(bandwidth.share(read, median(samples.seconds[point])), 4)


def ms(seconds: float) -> float:
    """Milliseconds, to a tenth of a microsecond."""
    return round(1e3 * seconds, 4)


def _point(point: Point, first: Point, samples: Samples) -> dict[str, object]:
    values = samples.seconds[point]
    times = {"ms": ms(median(values)), "lowest_ms": ms(min(values)), "highest_ms": ms(max(values))}
    ratio = [round(value, 4) for value in samples.ratio(point, first)]
    return {**point._asdict(), **times, "over_first": ratio[0], "lowest_ratio": ratio[1], "highest_ratio": ratio[2]}


def chart(subject: Subject, grid: Grid, samples: Samples, bandwidth: Bandwidth) -> str:
    """The curve for people."""
    spec = subject.target.spec
    lines = [
        f"{spec.name}: {subject.runtime} runtime ({subject.isa}), weights {subject.weights}, kv {subject.kv}, "
        f"{subject.threads} threads, rows fed as a {grid.feed}, {grid.repeats} rounds"
    ]
    for context in grid.contexts:
        for batch in grid.batches:
            points = [point for point in grid.points if (point.batch, point.context) == (batch, context)]
            if points:
                lines += ["", f"batch {batch}, context {context}", *_bars(points, grid, samples)]
    if grid.left_out:
        lines += ["", f"left out, too many rows for one forward: {', '.join(str(tuple(p)) for p in grid.left_out)}"]
    return "\n".join([*lines, "", *_memory(subject, grid, samples, bandwidth)])


def _bars(points: list[Point], grid: Grid, samples: Samples) -> list[str]:
    longest = max(median(samples.seconds[point]) for point in points)
    head = f"{'rows':>6}{'ms':>10}{'lowest':>10}{'highest':>10}{'ratio':>8}"
    lines = [head]
    for point in points:
        values = samples.seconds[point]
        ratio = samples.ratio(point, first_of(grid, point))[0]
        bar = "#" * max(1, round(_BAR * median(values) / longest))
        times = "".join(f"{1e3 * value:10.2f}" for value in (median(values), min(values), max(values)))
        lines.append(f"{point.rows:6}{times}{ratio:8.2f}  {bar}")
    return lines


def _memory(subject: Subject, grid: Grid, samples: Samples, bandwidth: Bandwidth) -> list[str]:
    read = bandwidth.to_json()
    fit = {None: "the size of the last-level cache is not known", True: "they fit", False: "they do not fit"}
    cache = f"the last-level cache has {(bandwidth.cache_bytes or 0) / 1e6:.0f} MB: " if bandwidth.cache_bytes else ""
    lines = [
        f"weights {subject.weight_bytes / 1e6:.1f} MB a forward; {cache}{fit[bandwidth.weights_fit]}",
        f"memory reads at {read['like_weights']} GB/s over a buffer like the weights, "
        f"{read['beyond_caches']} GB/s over one beyond the caches",
    ]
    first = grid.points[0]
    reached = share(subject, samples, bandwidth, Point(1, first.batch, first.context))
    if reached is not None:
        lines.append(f"one row reaches {reached:.0%} of the first of these")
    return lines
