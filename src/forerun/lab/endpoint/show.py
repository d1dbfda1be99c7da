"""What a run against a server shows: times, volume, comparisons, speculation, and what to keep in mind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from forerun.lab.endpoint.compare import UNEQUAL
from forerun.lab.views import Chart, Note, Series, Table, View, interval, number

BUSY = 0.8  # processor time of the client over wall time
UNTRUE = 0.5  # of the asked concurrency that was in flight on average
FEW_BLOCKS = 3  # at one concurrency, below which a drift between two arms' turns may pass for a difference


def view(figures: Mapping[str, Any]) -> list[View]:
    """Tables, two charts and notes."""
    cells = figures["cells"]
    views: list[View] = [_times(cells), _volume(cells)]
    if any(cell["cost"] for by_level in cells.values() for cell in by_level.values()):
        views.append(_costs(cells))
    if figures["compared"]:
        views.append(_compared(figures["compared"], figures["first"]))
    views.append(_noise(figures["noise"]))
    spoken = [row for row in _rows(cells) if _speculates(row[2]["speculation"])]
    if spoken:
        views.append(_speculation(spoken))
    views += [_chart(cells, "total_tokens_per_s", "Throughput", "tokens a second"), _delays(cells)]
    return [*views, *(Note(text) for text in dict.fromkeys(notes(figures)))]


def _rows(cells: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    return [(arm, level, cell) for arm, by_level in cells.items() for level, cell in by_level.items()]


def _speculates(found: Mapping[str, Any]) -> bool:
    return bool(found.get("drafted") or found.get("passes"))


def _pair(spread: Mapping[str, Any] | None, digits: int = 1) -> str:
    if spread is None:
        return "-"
    return f"{spread['median']:,.{digits}f} / {spread['p95']:,.{digits}f}"


def _times(cells: Mapping[str, Any]) -> Table:
    heads = ("model", "at once", "first token", "per token", "burst gap", "whole answer")
    names = ("ttft_ms", "ms_per_token", "burst_gap_ms", "latency_ms")
    rows = [(arm, level, *(_pair(cell[name], 2) for name in names)) for arm, level, cell in _rows(cells)]
    return Table("Milliseconds of a request: median / 95 %", heads, tuple(rows))


def _volume(cells: Mapping[str, Any]) -> Table:
    heads = ("model", "at once", "answered", "retried", "tokens", "tokens/burst", "tokens/s each", "tokens/s total")
    rows = []
    for arm, level, cell in _rows(cells):
        total, peak = number(cell["total_tokens_per_s"], 1), number(cell["peak_tokens_per_s"], 1)
        rows.append(
            (
                arm,
                level,
                f"{cell['requests'] - cell['failed']} of {cell['requests']}",
                str(cell["retried"]),
                number(cell["tokens"], 0),
                number(cell["tokens_per_burst"]),
                number(cell["tokens_per_s"] and cell["tokens_per_s"]["median"], 1),
                f"{total} (peak {peak})",
            )
        )
    return Table("Volume, by the server's count of tokens", heads, tuple(rows))


def _costs(cells: Mapping[str, Any]) -> Table:
    heads = ("model", "at once", "cost", "a request", "of rejected predictions", "predicted tokens kept / rejected")
    rows = []
    for arm, level, cell in _rows(cells):
        cost = cell["cost"]
        if cost is not None:
            money = [f"{cost[name]:.6f} {cost['currency']}" for name in ("total", "per_request", "of_rejected")]
            kept = f"{cost['accepted_prediction_tokens']} / {cost['rejected_prediction_tokens']}"
            rows.append((arm, level, *money, kept))
    return Table("Cost of the measured answers by the price table", heads, tuple(rows))


def _compared(compared: Mapping[str, Any], first: str) -> Table:
    heads = ("model", "at once", "per token", "verdict", "first token", "whole answer", "same text")
    rows = []
    for arm, level, found in _rows(compared):
        speed = found["ms_per_token"]
        ratios = [interval(found["ttft"]), interval(found["latency"])]
        if found["latency"] and found["latency"]["verdict"] == UNEQUAL:
            ratios[1] += f": {UNEQUAL}"
        same = f"{found['same_text']} of {found['answers']}"
        rows.append((arm, level, interval(speed), (speed and speed["verdict"]) or "-", *ratios, same))
    return Table(f"Times faster than {first}, prompt by prompt (above 1: faster)", heads, tuple(rows))


def _noise(noise: Mapping[str, Any]) -> Table:
    heads = ("at once", "per token", "first token", "whole answer")
    names = ("ms_per_token", "ttft", "latency")
    rows = [(level, *(interval(found[name], 3) for name in names)) for level, found in noise.items()]
    return Table("Noise floor: the first model against itself", heads, tuple(rows))


def _speculation(rows: list[tuple[str, str, Mapping[str, Any]]]) -> Table:
    """A rate stands beside its volume and the speed."""
    heads = ("model", "at once", "accepted", "drafted", "a round", "of the answers", "per pass", "ms/token", "source")
    cells = []
    for arm, level, cell in rows:
        found = cell["speculation"]
        rate, share = found.get("acceptance"), found.get("share_of_answers")
        cells.append(
            (
                arm,
                level,
                "-" if rate is None else f"{rate:.0%}",
                number(found.get("drafted"), 0),
                number(found.get("drafted_per_round")),
                "-" if share is None else f"{share:.0%}",
                number(found.get("tokens_per_pass")),
                number(cell["ms_per_token"] and cell["ms_per_token"]["median"]),
                found["source"],
            )
        )
    return Table("Speculation, as the server tells it", heads, tuple(cells))


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
        if found["latency"] and found["latency"]["verdict"] == UNEQUAL:
            said = "its texts are others and nobody counts their tokens"
            if lengths := found["tokens"]:
                said = (
                    f"its answers have {lengths[1]:.1f} tokens on average, those of {figures['first']} {lengths[0]:.1f}"
                )
            yield (
                f"{arm}, {level} at once: {said}: compare times per token, not whole answers (or ask with --ignore-eos)"
            )
