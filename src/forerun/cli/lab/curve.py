"""Measure this machine and this model: `forerun lab curve` times forwards by rows, batch and context.

examples:
  forerun lab curve -m smollm2 --weights bf16 --rows 1,16,64 --context 256 --batch 1 --json
  forerun lab curve -m random:qwen2-1.5b --weights bf16 --rows 1 --repeats 5"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forerun.lab.curve import Grid, Samples

CURVE = """\
Milliseconds of a forward over rows, batches and contexts, and the share of the memory bandwidth that one row reaches.

Medians of interleaved rounds, with their spread. Every combination of rows, batches and contexts is measured; rows are
those of each sequence, the newest token included, so that one row is plain decoding.\
"""
EXAMPLES = """\
examples:
  forerun lab curve
  forerun lab curve --weights int8 --rows 1,16 --context 256,4096 --json
  forerun lab curve --rows 1 --batch 1,8,32 --out batches"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's commands."""
    commands = parser.add_subparsers(dest="experiment", metavar="EXPERIMENT", required=True, parser_class=type(parser))
    curve = commands.add_parser(
        "curve",
        help="milliseconds of a forward by rows, batch and context; memory bandwidth reached",
        description=CURVE,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    curve.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error")
    add_curve(curve)


def add_curve(parser: argparse.ArgumentParser) -> None:
    """Options of `lab curve`."""
    grid = parser.add_argument_group("what is measured")
    rows = "1,2,4,8,16,32,64,128,256,512"
    grid.add_argument("--rows", default=rows, metavar="N,…", help=f"rows of each sequence ({rows})")
    grid.add_argument("--batch", default="1", metavar="N,…", help="sequences fed at once (1)")
    grid.add_argument(
        "--context", default="256", metavar="N,…", help="tokens of each sequence before the forward (256)"
    )
    grid.add_argument("--repeats", type=int, default=15, help="rounds; each measures every point once (15)")
    feed = grid.add_mutually_exclusive_group()
    feed.add_argument("--tree", action="store_true", help="feed rows as a binary tree (a chain)")
    feed.add_argument("--prompt", action="store_true", help="feed rows as prompt, with logits of the last one only")
    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "-m", "--model", default="smollm2", help="as elsewhere, or random:NAME of random weights (smollm2)"
    )
    for option, help in (
        ("--runtime", "native or torch (auto: the first that runs)"),
        ("--weights", "auto, f32, bf16, int8, q4 or nf4 on the native runtime (auto)"),
        ("--kv", "auto, f32, bf16 or int8 on the native runtime (auto)"),
        ("--dtype", "float32, bfloat16 or float16 on the torch runtime (float32)"),
    ):
        engine.add_argument(option, help=help)
    engine.add_argument("--threads", type=int, help="CPU threads (as many as there are cores to use)")
    out = parser.add_argument_group("output")
    out.add_argument("--json", action="store_true", help="end with one line of JSON that holds every figure")
    out.add_argument(
        "--out", metavar="NAME", help="write results/NAME.json, and results/NAME.svg if matplotlib is there"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print the chart and, if asked for, JSON and files."""
    from forerun.lab.bandwidth import Bandwidth, reader
    from forerun.lab.curve import Grid, measure
    from forerun.lab.report import chart, figures
    from forerun.lab.subject import open_subject

    grid = Grid(
        numbers("--rows", args.rows),
        numbers("--batch", args.batch),
        numbers("--context", args.context),
        args.repeats,
        "tree" if args.tree else "prompt" if args.prompt else "chain",
    )
    check_name(args.out)
    names = ("runtime", "weights", "kv", "dtype", "threads")
    options = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    subject = open_subject(args.model, grid.kv_tokens, options)
    bandwidth = Bandwidth(subject.weight_bytes, reader())
    turns = {0, grid.repeats // 2, grid.repeats}

    def between(done: int) -> None:
        if done in turns:
            bandwidth.measure()
        if sys.stderr.isatty():
            print(f"\rround {done} of {grid.repeats}", end="\n" if done == grid.repeats else "", file=sys.stderr)

    samples = measure(subject.target, grid, between=between)
    print(chart(subject, grid, samples, bandwidth))
    found = figures(subject, grid, samples, bandwidth)
    if args.out:
        _write(args.out, subject.title, found, grid, samples)
    if args.json:
        print(json.dumps(found, allow_nan=False))
    return 0


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers from 1 up, separated by commas; SpecError for anything else."""
    from forerun.core.errors import SpecError

    if not re.fullmatch(r"[1-9]\d{0,7}(,[1-9]\d{0,7})*", text, re.ASCII):
        raise SpecError(f"{option} takes whole numbers from 1 up, separated by commas (as 1,16,64), got {text!r}")
    return tuple(map(int, text.split(",")))


def check_name(name: str | None) -> None:
    """SpecError unless `name` can be a file's."""
    from forerun.core.errors import SpecError

    if name is not None and not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise SpecError(f"--out takes a plain name (letters, digits, dots, dashes) for results/NAME.json, got {name!r}")


def _write(name: str, title: str, found: dict[str, object], grid: Grid, samples: Samples) -> None:
    from forerun.lab.machine import provenance, write_whole
    from forerun.lab.picture import svg

    whole = {"bench": {**provenance(), "threads": found["threads"]}, "figures": found}
    write_whole(Path("results") / f"{name}.json", json.dumps(whole, indent=1, allow_nan=False) + "\n")
    picture = svg(title, grid, samples)
    if picture is None:
        print('no picture: matplotlib is not installed; pip install "forerun[lab]"', file=sys.stderr)
    else:
        write_whole(Path("results") / f"{name}.svg", picture)
