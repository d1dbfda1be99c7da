"""What a run against a server shows: times, volume, comparisons, speculation, and what to keep in mind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from forerun.lab import columns
from forerun.lab.columns import Column, Found
from forerun.lab.endpoint.compare import UNEQUAL
from forerun.lab.views import Chart, Note, Series, Table, View, interval, number

BUSY = 0.8  # processor time of the client over wall time
UNTRUE = 0.5  # of the asked concurrency that was in flight on average
FEW_BLOCKS = 3  # at one concurrency, below which a drift between two arms' turns may pass for a difference


def view(figures: Mapping[str, Any]) -> list[View]:
    """Tables, two charts and notes."""
    cells = figures["cells"]
    rows = _rows(cells)
    views: list[View] = [
        _told("Milliseconds of a request: median / 95 %", rows, TIMES),
        _told("Volume, by the server's count of tokens", rows, VOLUME),
    ]
    if priced := [row for row in rows if row[2]["cost"]]:
        views.append(_told("Cost of the measured answers by the price table", priced, COSTS))
    if figures["compared"]:
        title = f"Times faster than {figures['first']}, prompt by prompt (above 1: faster)"
        views.append(_told(title, _rows(figures["compared"]), COMPARED))
    floor = [((level,), found) for level, found in figures["noise"].items()]
    views.append(columns.table("Noise floor: the first model against itself", ("at once",), floor, NOISE))
    if spoken := [row for row in rows if _speculates(row[2]["speculation"])]:
        views.append(_told("Speculation, as the server tells it", spoken, SPECULATION))
    views += [_chart(cells, "total_tokens_per_s", "Throughput", "tokens a second"), _delays(cells)]
    return [*views, *(Note(text) for text in dict.fromkeys(notes(figures)))]


def _rows(cells: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    return [(arm, level, cell) for arm, by_level in cells.items() for level, cell in by_level.items()]


def _speculates(found: Mapping[str, Any]) -> bool:
    return bool(found.get("drafted") or found.get("passes"))


LEADS = ("model", "at once")


def _told(title: str, rows: list[tuple[str, str, Found]], shown: Iterable[Column]) -> Table:
    return columns.table(title, LEADS, [((arm, level), cell) for arm, level, cell in rows], shown)


def _spread(head: str, key: str) -> Column:
    """Median and 95 %."""
    return Column(head, lambda f: "-" if (s := f[key]) is None else f"{s['median']:,.2f} / {s['p95']:,.2f}")


def _median(head: str, key: str, digits: int = 2) -> Column:
    return Column(head, lambda f: number(f[key] and f[key]["median"], digits))


def _money(head: str, key: str) -> Column:
    return Column(head, lambda f: f"{f['cost'][key]:.6f} {f['cost']['currency']}")


TIMES = (
    _spread("first token", "ttft_ms"), _spread("per token", "ms_per_token"), _spread("burst gap", "burst_gap_ms"),
    _spread("whole answer", "latency_ms"),
)  # fmt: skip
VOLUME = (
    Column("answered", lambda f: f"{f['requests'] - f['failed']} of {f['requests']}"),
    columns.word("retried", "retried"),
    columns.of("tokens", "tokens", 0),
    columns.of("tokens/burst", "tokens_per_burst"),
    _median("tokens/s each", "tokens_per_s", 1),
    Column(
        "tokens/s total", lambda f: f"{number(f['total_tokens_per_s'], 1)} (peak {number(f['peak_tokens_per_s'], 1)})"
    ),
)
COSTS = (
    _money("cost", "total"),
    _money("a request", "per_request"),
    _money("of rejected predictions", "of_rejected"),
    Column(
        "predicted tokens kept / rejected",
        lambda f: f"{f['cost']['accepted_prediction_tokens']} / {f['cost']['rejected_prediction_tokens']}",
    ),
)
COMPARED = (
    columns.ratio("per token", "ms_per_token"),
    Column("verdict", lambda f: (f["ms_per_token"] and f["ms_per_token"]["verdict"]) or "-"),
    columns.ratio("first token", "ttft"),
    Column("whole answer", lambda f: f"{interval(f['latency'])}{f': {UNEQUAL}' if _unequal(f) else ''}"),
    columns.SAME,
)
NOISE = (
    columns.ratio("per token", "ms_per_token", 3),
    columns.ratio("first token", "ttft", 3),
    columns.ratio("whole answer", "latency", 3),
)
SPECULATION = (
    Column("accepted", lambda f: _share(f["speculation"].get("acceptance"))),
    Column("drafted", lambda f: number(f["speculation"].get("drafted"), 0)),
    Column("a round", lambda f: number(f["speculation"].get("drafted_per_round"))),
    Column("of the answers", lambda f: _share(f["speculation"].get("share_of_answers"))),
    Column("per pass", lambda f: number(f["speculation"].get("tokens_per_pass"))),
    _median("ms/token", "ms_per_token"),
    Column("source", lambda f: f["speculation"]["source"]),
)
"""A rate stands beside its volume and the speed."""


def _share(part: float | None) -> str:
    return "-" if part is None else f"{part:.0%}"


def _unequal(found: Found) -> bool:
    return bool(found["latency"]) and found["latency"]["verdict"] == UNEQUAL


def _chart(cells: Mapping[str, Any], name: str, title: str, unit: str) -> Chart:
    series = [
        Series(arm, tuple(float(level) for level in by), tuple(cell[name] for cell in by.values()))
        for arm, by in cells.items()
    ]
    return Chart("lines", title, "requests at once", unit, tuple(series), log_x=True)


def _delays(cells: Mapping[str, Any]) -> Chart:
    series = []
    for arm, by in cells.items():
        told = [cell["ms_per_token"] or {} for cell in by.values()]
        ys, lows, highs = (tuple(spread.get(key) for spread in told) for key in ("median", "p05", "p95"))
        series.append(Series(arm, tuple(float(level) for level in by), ys, lows, highs))
    return Chart("lines", "Time between tokens (5..95 %)", "requests at once", "ms", tuple(series), log_x=True)


def notes(figures: Mapping[str, Any]) -> Iterator[str]:
    """What these figures must not be read without, a sentence each."""
    for arm, level, cell in _rows(figures["cells"]):
        yield from _of_cell(f"{arm}, {level} at once", int(level), cell)
    for level, found in figures["noise"].items():
        speed = found["ms_per_token"]
        if speed is not None and not speed["calm"]:
            floor = interval(speed, 3)
            yield f"{level} at once: the same model differs from itself by {floor}: trust no small difference"
    for arm, level, found in _rows(figures["compared"]):
        if found["without_looping"]:
            rest = interval(found["without_looping"]["ms_per_token"])
            yield f"{arm}, {level} at once: without answers that loop, {rest} times as fast per token"
    yield from _lengths(figures)


def _of_cell(where: str, level: int, cell: Mapping[str, Any]) -> Iterator[str]:
    if cell["looping"]["answers"]:
        many, of, part = (cell["looping"][name] for name in ("answers", "of", "repeated"))
        yield f"{where}: {many} of {of} answers loop, {part:.0%} of all 6-grams stood before: that is easy to draft"
    if cell["failed"]:
        kinds = ", ".join(f"{kind} ({count})" for kind, count in cell["failures"].items())
        yield f"{where}: {cell['failed']} of {cell['requests']} requests failed: {kinds}; they stand in no time"
    if cell["smooth_blocks"] < cell["blocks"]:
        yield f"{where}: throughput is of {cell['smooth_blocks']} of {cell['blocks']} blocks, those without a failure"
    if cell["counted_by"] == "nobody":
        yield f"{where}: the server does not count tokens (no `usage`): nothing is said by token"
    elif cell["counted_by"] == "usage" and cell["tokens"] > 1.05 * cell["events"]:
        yield f"{where}: events hold several tokens; the first one is taken to hold as many as the average"
    if cell["ms_per_token"] is None and cell["counted_by"] != "nobody":
        yield f"{where}: every answer came in one piece: no time between tokens can be seen"
    if cell["retokenised"] is not None:
        yield f"{where}: cross-check, not a count: --tokenizer makes {cell['retokenised']:,} tokens of the texts"
    if cell["cached_prompt_tokens"]:
        read = f"{cell['cached_prompt_tokens']:,} of {cell['prompt_tokens']:,} prompt tokens"
        yield f"{where}: {read} were in the server's cache"
    if cell["blocks"] < FEW_BLOCKS:
        yield f"{where}: few blocks ({cell['blocks']}), a drift may pass for a difference: more --rounds or --prompts"
    if cell["dirty_blocks"]:
        yield f"{where}: before {cell['dirty_blocks']} of {cell['blocks']} blocks the server was NOT idle"
    if cell["idle_by"] == ["unchecked"]:
        yield f"{where}: whether the server was idle was not looked at"
    if cell["client_busy"] > BUSY:
        yield f"{where}: this client was busy for {cell['client_busy']:.0%} of the time: it may have measured itself"
    if cell["in_flight"] is not None and cell["in_flight"] < UNTRUE * level:
        yield f"{where}: on average {cell['in_flight']:.1f} requests were in flight: ask more --prompts"
    for warning in cell["speculation"]["warnings"]:
        yield f"{where}: {warning}"
    if why := cell["speculation"].get("silence"):
        yield f"nothing is told of speculation: {why}"


def _lengths(figures: Mapping[str, Any]) -> Iterator[str]:
    """Answers of different lengths are not equal work."""
    for arm, level, found in _rows(figures["compared"]):
        if _unequal(found):
            said = "its texts are others and nobody counts their tokens"
            if lengths := found["tokens"]:
                said = (
                    f"its answers have {lengths[1]:.1f} tokens on average, those of {figures['first']} {lengths[0]:.1f}"
                )
            yield (
                f"{arm}, {level} at once: {said}: compare times per token, not whole answers (or ask with --ignore-eos)"
            )
