"""What a measured curve says: its figures, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from forerun.costs.curve import Point
from forerun.lab import columns
from forerun.lab.bandwidth import Bandwidth
from forerun.lab.costs.curve import Grid, Samples
from forerun.lab.run import Answers
from forerun.lab.subject import Subject
from forerun.lab.views import Chart, Note, Series, Table, View

Points = Sequence[Mapping[str, Any]]


def figures(subject: Subject, grid: Grid, samples: Samples, bandwidth: Bandwidth) -> dict[str, Any]:
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
        "row_gb_s": speed(subject, samples, Point(1, batch, context)),
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
    return round(bandwidth.share(_read(subject, point), median(samples.seconds[point])), 4)


def speed(subject: Subject, samples: Samples, point: Point) -> float | None:
    """10^9 bytes a second that a forward of one row reads; None where it was not measured."""
    if point not in samples.seconds:
        return None
    return round(_read(subject, point) / median(samples.seconds[point]) / 1e9, 3)


def _read(subject: Subject, point: Point) -> int:
    """Bytes that a forward reads: all weights, and the keys and values of every sequence."""
    return subject.weight_bytes + subject.token_bytes * point.batch * point.context


def ms(seconds: float) -> float:
    """Milliseconds, to a tenth of a microsecond."""
    return round(1e3 * seconds, 4)


def _point(point: Point, first: Point, samples: Samples) -> dict[str, object]:
    values = samples.seconds[point]
    times = {"ms": ms(median(values)), "lowest_ms": ms(min(values)), "highest_ms": ms(max(values))}
    ratio = [round(value, 4) for value in samples.ratio(point, first)]
    return {**point._asdict(), **times, "over_first": ratio[0], "lowest_ratio": ratio[1], "highest_ratio": ratio[2]}


def answers(stack: str, grid: Grid) -> Answers:
    """The five answers of such a run."""
    contexts = ", ".join(map(str, grid.contexts))
    return Answers(
        relative_to="the fewest rows of the smallest batch at the same context, round by round",
        batch=", ".join(map(str, grid.batches)),
        stack=stack,
        data=f"random tokens before the forward: {contexts}; {grid.repeats} rounds, every point once in each",
        shape=f"rows fed as a {grid.feed}: {', '.join(map(str, grid.rows))}",
    )


def view(figures: Mapping[str, Any]) -> list[View]:
    """A table for each batch and context, a chart of all, and where the limit of memory is."""
    f = figures
    views: list[View] = [
        Note(
            f"{f['model']}: {f['runtime']} runtime ({f['isa']}), weights {f['weights']}, kv {f['kv']}, "
            f"{f['threads']} threads, rows fed as a {f['feed']}, {f['repeats']} rounds"
        )
    ]
    lines = _lines(f["points"])
    views += [_table(name, points) for name, points in lines.items()]
    views.append(_chart(lines))
    if f["left_out"]:
        left_out = ", ".join(str(tuple(point)) for point in f["left_out"])
        views.append(Note(f"left out, too many rows for one forward (rows, batch, context): {left_out}"))
    return [*views, *map(Note, _memory(f))]


def _lines(points: Points) -> dict[str, Points]:
    """Points by what their line is called."""
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for point in points:
        lines.setdefault(f"batch {point['batch']}, context {point['context']}", []).append(point)
    return {name: sorted(found, key=lambda point: point["rows"]) for name, found in lines.items()}


def _table(name: str, points: Points) -> Table:
    return columns.table(name, (), [((), point) for point in points], COLUMNS)


COLUMNS = (
    columns.word("rows", "rows"), columns.of("ms", "ms"), columns.of("lowest", "lowest_ms"),
    columns.of("highest", "highest_ms"),
    columns.Column("ratio", lambda p: f"{p['over_first']:.2f} ({p['lowest_ratio']:.2f}..{p['highest_ratio']:.2f})"),
)  # fmt: skip


def _chart(lines: Mapping[str, Points]) -> Chart:
    series = [
        Series(
            name,
            tuple(p["rows"] for p in points),
            *(tuple(p[key] for p in points) for key in ("ms", "lowest_ms", "highest_ms")),
        )
        for name, points in lines.items()
    ]
    title = "Milliseconds of a forward: median, lowest to highest"
    return Chart("lines", title, "rows of a sequence in one forward", "ms", tuple(series), log_x=True)


def _memory(f: Mapping[str, Any]) -> list[str]:
    """Sentences on what a forward reads, and how fast."""
    read = f["bandwidth_gb_s"]
    fit = {None: "the size of the last-level cache is not known", True: "they fit", False: "they do not fit"}
    cache = f"the last-level cache has {f['cache_bytes'] / 1e6:.0f} MB: " if f["cache_bytes"] else ""
    reached, own = f["bandwidth_share"], f.get("row_gb_s")
    said = [] if reached is None else [f"one row reaches {reached:.0%} of that speed over a buffer like the weights"]
    if own is not None and own > read["like_weights"]:
        said = [f"one row reads {own} GB/s, faster than the probe did: that is taken for the bandwidth"]
    return [
        f"weights {f['weight_bytes'] / 1e6:.1f} MB a forward; {cache}{fit[f['weights_fit_cache']]}",
        f"memory reads at {read['like_weights']} GB/s over a buffer like the weights, "
        f"{read['beyond_caches']} GB/s over one beyond the caches",
        *said,
    ]
