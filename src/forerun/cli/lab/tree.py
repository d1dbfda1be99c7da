"""Which static tree should a head have here? Chances by depth and rank, costs, and the tree of most tokens a second.

The chances and the costs are measured, the tree is found by dynamic programming over both, and asked of prompts that it
was not chosen by, beside plain decoding and the drafter as its spec has it. --tree writes it as a file that the drafter
takes: -d eagle3:tree=FILE.json.

examples:
  forerun lab tree -d eagle3 --workload dialogue
  forerun lab tree -d medusa --rows 32 --tree medusa-here.json --out measured/tree.json"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from forerun.cli.lab import common
from forerun.core.errors import SpecError

DEPTH, ROWS = 6, 16

SWEEP = True


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.lab import defaults

    trees = parser.add_argument_group("trees")
    trees.add_argument("--depth", type=int, default=DEPTH, help=f"most levels ({DEPTH})")
    trees.add_argument("--rows", type=int, default=ROWS, help=f"most rows of a forward, root included ({ROWS})")
    trees.add_argument("--tree", type=Path, metavar="FILE.json", help="write the best tree there")
    parser.add_argument("-d", "--drafter", default="eagle3", metavar="NAME[:KEY=VALUE,…]", help="a head (eagle3)")
    common.add_data(parser, defaults.TREE_WORKLOADS, defaults.PROMPTS, defaults.SHAPE_TOKENS)
    common.add_engine(parser)
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and tell."""
    from forerun.lab.tree import answers, run_tree, with_tree

    for name, low, high in (("depth", 1, 16), ("rows", 2, 32)):
        if not low <= getattr(args, name) <= high:
            raise SpecError(f"--{name} takes a whole number from {low} to {high}, got {getattr(args, name)}")
    with_tree(args.drafter, Path("tree.json"))  # refused before a model is loaded
    if args.tree is not None and args.tree.suffix != ".json":
        raise SpecError(f"a tree is written to a .json file, got {args.tree}")
    workloads, asked = common.chosen_workloads(args), common.asked(args)
    if min(len(work.prompts) for work in workloads) < 2:
        raise SpecError("a tree is chosen by one half of the prompts and tried on the other: give at least two")
    with common.session(args, "tree", workloads=workloads, drafters=[args.drafter]) as (bench, run):
        figures, samples = run_tree(bench, run, args.drafter, workloads, asked, args.depth, args.rows)
        said = answers(bench, args.drafter, workloads, asked, args.depth, args.rows)
        status = common.deliver(args, run, bench.provenance(), said, figures, samples.to_json())
    if args.tree is not None:
        args.tree.write_text(json.dumps(figures["best"]["paths"]) + "\n", encoding="utf-8")
    return status
