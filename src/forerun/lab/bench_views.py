"""What the scripts `scripts/bench_*` show of their results, one function a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.lab import columns
from forerun.lab.views import Chart, Note, Series, Table, View, interval, measured, number

Found = Mapping[str, Any]

ANSWERED = (
    columns.word("answered tokens", "answered"), columns.word("all tokens", "tokens"),
    columns.of("seconds", "seconds", 0), columns.of("answered/s", "per_second", 0),
)  # fmt: skip


def synthesis(figures: Found) -> list[View]:
    """How fast a target answers its own prompts for training, by format of the weights."""
    rows = [((weights,), one) for weights, one in figures["weights"].items()]
    return [columns.table("Answers to learn from", ("weights",), rows, ANSWERED)]


def noise(figures: Found) -> list[View]:
    """How far plain decoding was from itself, run by run."""
    runs = figures["runs"]
    names = [str(i) for i in range(1, len(runs) + 1)]
    rows = tuple(
        (name, interval(run, 3), "yes" if run["calm"] else "no") for name, run in zip(names, runs, strict=True)
    )
    series = (measured("A/A", names, runs),)
    return [
        Note(f"{figures['inside']} of {figures['of']} runs within 0.97 to 1.03"),
        Table("Plain decoding over plain decoding", ("run", "ratio", "within 3 %"), rows),
        Chart("bars", "Plain decoding over itself", "run", "times", series, level=1.0),
    ]


def neighbours(figures: Found) -> list[View]:
    """What busy neighbours cost, by number of threads: a table for each format and number of rows."""
    heads = ("neighbours", "all threads", "one thread", "as chosen", "of alone")
    views: list[View] = []
    for weights, by_rows in figures.items():
        for rows, found in by_rows.items():
            cells = tuple(
                (name.split()[0], *(number(ms) for ms in scene["ms"].values()), f"{scene['of_alone']:.2f}x")
                for name, scene in found.items()
            )
            views.append(Table(f"Milliseconds a forward, {weights}, {rows}", heads, cells))
    return views


def perplexity(figures: Found) -> list[View]:
    """The quality that each format costs, and what it adds to the perplexity of f32."""
    formats = figures["formats"]
    shown = (
        columns.of("perplexity", "perplexity", 4),
        columns.Column("over f32", lambda f: f"{f['over_f32']:+.2%}"),
        columns.Column("matrices", lambda f: ", ".join(f"{count} {name}" for name, count in f["matrices"].items())),
    )
    title = f"Perplexity of {figures['tokens']:,} tokens in windows of {figures['window']:,} (text {figures['text']})"
    over = Series("over f32", tuple(formats), tuple(100 * entry["over_f32"] for entry in formats.values()))
    return [
        columns.table(title, ("format",), [((name,), entry) for name, entry in formats.items()], shown),
        Chart("bars", "Perplexity over that of f32", "", "percent", (over,), level=0.0),
    ]


PARTS = {"weights": "weights_mb", "keys and values": "kv_mb", "the rest": "over_mb"}


def memory(figures: Found) -> list[View]:
    """The memory of whole processes, what its peak is made of, and how long they take to speak."""
    arms = {name: entry for name, entry in figures.items() if isinstance(entry, Mapping)}
    shown = (
        columns.of("peak", "peak_mb", 0), *(columns.of(part, key, 0) for part, key in PARTS.items()),
        columns.of("to first token, s", "command_to_first_token_s"),
    )  # fmt: skip
    series = tuple(
        Series(part, tuple(arms), tuple(entry[key] for entry in arms.values())) for part, key in PARTS.items()
    )
    title = f"Peak memory of a whole process, {figures['model']}, {figures['context']:,} tokens of context in use"
    rows = [((name,), entry) for name, entry in arms.items()]
    return [
        columns.table(title, ("MB, 10^6 bytes",), rows, shown),
        Chart("stack", "Peak memory of a process", "", "MB", series),
    ]


ARMS = {"whole forward": "forward_ms", "products, packed": "packed_ms", "products, F.linear": "F.linear_ms"}


def rows(figures: Found) -> list[View]:
    """What a few rows cost on the torch runtime, and its products alone; whether rows keep their bits."""
    views: list[View] = []
    for dtype, entry in figures.items():
        if not isinstance(entry, Mapping):
            continue
        heads = (dtype, *(f"{rows} rows" if rows != "1" else "1 row" for rows in entry["forward_ms"]))
        cells = tuple((name, *(number(ms) for ms in entry[key].values())) for name, key in ARMS.items())
        series = tuple(
            Series(name, tuple(map(float, times)), tuple(ms / times["1"] for ms in times.values()))
            for name, times in ((name, entry[key]) for name, key in ARMS.items())
        )
        title, bits = f"Time over that of one row, {dtype}", "have" if entry["packed_rows_same_bits"] else "do NOT have"
        views += [
            Table(f"Milliseconds by rows, {dtype}", heads, cells),
            Chart("lines", title, "rows", "times", series, level=1.0, log_x=True),
            Note(f"{dtype}: rows of the packed products {bits} the same bits at any number"),
        ]
    return views
