"""Milliseconds of a forward by rows, batch and context, and the share of the memory bandwidth that one row reaches.

Medians of interleaved rounds, with their spread. Every combination of rows, batches and contexts is measured; rows are
those of each sequence, the newest token included, so that one row is plain decoding. Random weights do: -m random:NAME
has the shape of a known model and needs no download.

examples:
  forerun lab curve
  forerun lab curve --weights int8 --rows 1,16 --context 256,4096
  forerun lab curve --rows 1 --batch 1,8,32 --out measured/batches.json
  forerun lab curve -m random:qwen2-1.5b --weights bf16 --rows 1 --repeats 5"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from forerun.cli.lab import common

if TYPE_CHECKING:
    from forerun.lab.bandwidth import Bandwidth
    from forerun.lab.run import Run

QUICK_ROWS, QUICK_REPEATS = 8, 3  # with --quick: most rows, most rounds


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.lab.defaults import CURVE_CONTEXT, CURVE_REPEATS, CURVE_ROWS

    grid = parser.add_argument_group("what is measured")
    grid.add_argument("--rows", default=CURVE_ROWS, metavar="N,…", help=f"rows of each sequence ({CURVE_ROWS})")
    grid.add_argument("--batch", default="1", metavar="N,…", help="sequences fed at once (1)")
    grid.add_argument(
        "--context",
        default=CURVE_CONTEXT,
        metavar="N,…",
        help=f"tokens of each sequence before the forward ({CURVE_CONTEXT})",
    )
    grid.add_argument(
        "--repeats",
        type=int,
        default=CURVE_REPEATS,
        help=f"rounds; each measures every point once ({CURVE_REPEATS})",
    )
    feed = grid.add_mutually_exclusive_group()
    feed.add_argument("--tree", action="store_true", help="feed rows as a binary tree (a chain)")
    feed.add_argument("--prompt", action="store_true", help="feed rows as prompt, with logits of the last one only")
    common.add_engine(parser, without=("verify", "max_len", "kv_tokens", "costs"))
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and tell."""
    from forerun.lab.bandwidth import Bandwidth, reader
    from forerun.lab.costs.curve import Grid, measure
    from forerun.lab.costs.curve_view import answers, figures

    rows, repeats = common.numbers("--rows", args.rows), args.repeats
    if args.quick:
        rows, repeats = tuple(n for n in rows if n <= QUICK_ROWS) or rows[:1], min(repeats, QUICK_REPEATS)
    grid = Grid(
        rows,
        common.numbers("--batch", args.batch),
        common.numbers("--context", args.context),
        repeats,
        "tree" if args.tree else "prompt" if args.prompt else "chain",
    )
    with common.session(args, "curve", kv_tokens=grid.kv_tokens) as (bench, run):
        bandwidth = Bandwidth(bench.subject.weight_bytes, reader())
        turns = {0, grid.repeats // 2, grid.repeats}

        def between(done: int) -> None:
            if done in turns:
                read(run, bandwidth, done)

        samples = measure(bench.target, grid, between=between, keep=run.unit, track=run.track)
        found = figures(bench.subject, grid, samples, bandwidth)
        return common.deliver(args, run, bench.provenance(), answers(bench.stack, grid), found, samples.to_json())


def read(run: Run, bandwidth: Bandwidth, done: int) -> None:
    """A reading of the memory bandwidth, or the one that an interrupted run took after so many rounds."""

    def fresh() -> list[float]:
        bandwidth.measure()
        return [bandwidth.like_weights.pop(), bandwidth.beyond_caches.pop()]

    like_weights, beyond_caches = run.unit(f"bandwidth/{done}", fresh)
    bandwidth.like_weights.append(like_weights)
    bandwidth.beyond_caches.append(beyond_caches)
