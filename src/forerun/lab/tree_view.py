"""What `lab tree` shows: chances by depth and rank, what drafting and verifying cost, the best tree, and the clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.lab import columns
from forerun.lab.domains import noise_note
from forerun.lab.looping import with_gains
from forerun.lab.views import Note, Table, View, number

Found = Mapping[str, Any]


def view(figures: Found) -> list[View]:
    """Tables and sentences."""
    views: list[View] = [noise_note(figures["noise"]), _chances(figures), _costs(figures), Note(_best(figures))]
    for name, found in figures["workloads"].items():
        views += with_gains(_clock(name, found), list(found["arms"].values()))
    if figures["left_out"]:
        views.append(Note(f"left out, too long for the context: {', '.join(figures['left_out'])}"))
    return views


def _chances(figures: Found) -> Table:
    most = max(map(len, figures["chances"]))
    rows = [
        (
            str(depth),
            *(number(value, 3) for value in row),
            *[""] * (most - len(row)),
            str(figures["judged"][depth - 1][0]),
        )
        for depth, row in enumerate(figures["chances"], 1)
    ]
    title = f"{figures['drafter']}: how often each rank stands where the node above it does"
    return Table(title, ("depth", *(f"rank {rank}" for rank in range(1, most + 1)), "judged"), tuple(rows))


def _costs(figures: Found) -> Table:
    target, draft = figures["target_ms"], figures["draft_ms"]
    rows = [(f"verify {count} rows", number(ms, 3)) for count, ms in target.items()]
    rows += [(f"draft {levels} levels", number(ms, 3)) for levels, ms in enumerate(draft, 1)]
    return Table("what a step costs", ("part", "ms"), tuple(rows))


def _best(figures: Found) -> str:
    best = figures["best"]
    if not best["nodes"]:
        return "no tree pays here: plain decoding gives most tokens a second"
    return (
        f"the best tree has {best['nodes']} nodes on {best['depth']} levels: {best['tokens']:.2f} tokens a step of "
        f"{best['ms']:.2f} ms, {best['speedup']:.2f} times plain decoding by this count"
    )


def _clock(name: str, found: Found) -> Table:
    title = f"{name}: by the clock, on {found['prompts']} prompts that the tree was not chosen by"
    return columns.table(title, ("arm",), [((arm,), each) for arm, each in found["arms"].items()], CLOCK)


CLOCK = (
    columns.TAU, columns.SPEEDUP, columns.word("verdict", "verdict"),
    columns.Column("same text", lambda f: f"{f['same_text']}/{f['answers']}"),
)  # fmt: skip
