"""Which draft shape pays? Depth, width and node budget swept one by one, chains against trees.

Every shape answers each prompt in turn with plain decoding. Says where depth stops paying, what branching alone adds
(at equal depth, and at equal rows), what EAGLE's automatic node count gives, and which shape is best: chosen on half of
the prompts, told of the other half. Drafters that heed only depth are swept over depth only.

examples:
  forerun lab shape
  forerun lab shape -d suffix --workload code --depths 1,2,4,8,15
  forerun lab shape -d model:path=DRAFT --widths 1,2,4 --nodes 7,15 --out measured/shape.json"""

from __future__ import annotations

import argparse

from forerun.cli.lab import common

SWEEP = True


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.lab import defaults

    shapes = parser.add_argument_group("shapes")
    for option, values, help in (
        ("--depths", defaults.SHAPE_DEPTHS, "depths, at the drafter's width"),
        ("--widths", defaults.SHAPE_WIDTHS, "most children of a node, at a fixed depth"),
        ("--nodes", defaults.SHAPE_NODES, "most nodes of a tree"),
    ):
        shapes.add_argument(option, default=values, metavar="N,…", help=f"{help} ({values})")
    common.add_drafters(parser, defaults.SHAPE_DRAFTERS)
    common.add_data(parser, defaults.SHAPE_WORKLOADS, defaults.PROMPTS, defaults.SHAPE_TOKENS)
    common.add_engine(parser)
    common.add_output(parser, log=True)


def run(args: argparse.Namespace) -> int:
    """Measure and tell."""
    from forerun.lab.shape import Grid, answers, run_shape, shapes

    grid = Grid(*(common.numbers(f"--{name}", getattr(args, name)) for name in ("depths", "widths", "nodes")))
    drafters, workloads, asked = common.chosen_drafters(args), common.chosen_workloads(args), common.asked(args)
    for spec in drafters:
        shapes(spec, grid, None)  # refused before a model is loaded
    with (
        common.session(args, "shape", workloads=workloads, drafters=drafters) as (bench, run),
        common.step_log(args) as log,
    ):
        figures, samples = run_shape(bench, run, drafters, workloads, asked, grid, log)
        said = answers(bench, drafters, workloads, asked, grid)
        return common.deliver(args, run, bench.provenance(), said, figures, samples.to_json())
