"""Does a bigger target gain more, and what does its drafter cost? Two or more targets, each with its drafters.

For each target: T(1), speed-up over its own plain decoding, and what drafting takes in milliseconds a step and a guess.
Nothing is concluded about size from targets that differ in more (network, tokenizer, formats), and that is said.
With --acceptance nothing is asked: forwards are timed, as random weights allow, and the speed-up is predicted.

examples:
  forerun lab size -m smollm2 -m models/360m -d ngram -d skip
  forerun lab size -m smollm2 -m models/360m -d smollm2=skip:layers=20 -d models/360m=model:path=smollm2
  forerun lab size -m random:qwen2-0.5b -m random:qwen2-1.5b -d skip --acceptance 0.7 --weights int8"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from forerun.cli.lab import common

if TYPE_CHECKING:
    from forerun.lab.run import Run
    from forerun.lab.sweeps.kin import Candidate
    from forerun.lab.sweeps.passes import Loader
    from forerun.workloads.workload import Workload

SWEEP = True


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.lab.defaults import SIZE_DRAFTERS, SWEEP_PROMPTS, SWEEP_TOKENS, SWEEP_WORKLOADS

    parser.add_argument(
        "-m", "--model", action="append", help="a target; give two or more, as everywhere or random:NAME"
    )
    parser.add_argument(
        "-d",
        "--drafter",
        action="append",
        metavar="[MODEL=]NAME[:KEY=VALUE,…]",
        help=f"a drafter for one target, or for all that have none of their own ({', '.join(SIZE_DRAFTERS)})",
    )
    parser.set_defaults(default_drafters=SIZE_DRAFTERS)
    costs = parser.add_argument_group("costs only")
    costs.add_argument("--acceptance", type=float, help="time forwards only; each guess stands with this chance")
    costs.add_argument("--context", type=int, default=256, help="tokens before the forwards that are timed (256)")
    costs.add_argument("--blocks", type=int, default=5, help="how often targets and drafters are timed in turn (5)")
    common.add_data(parser, SWEEP_WORKLOADS, SWEEP_PROMPTS, SWEEP_TOKENS)
    common.add_engine(parser, without=("model",))
    common.add_output(parser, log=True)


def run(args: argparse.Namespace) -> int:
    """Measure and tell."""
    from forerun.assemble import Config, choice_for
    from forerun.core.errors import SpecError
    from forerun.core.options import Spec, build
    from forerun.drafters.specs import split_plan
    from forerun.lab.run import check_out
    from forerun.lab.shapes import is_random
    from forerun.lab.sweeps.kin import Candidate
    from forerun.lab.sweeps.passes import Loader
    from forerun.lab.sweeps.size import share_out

    if args.acceptance is not None and args.log_steps is not None:
        raise SpecError("--acceptance times forwards and takes no steps: leave out --log-steps")
    candidates = []
    for model, specs in share_out(args.model or [], common.chosen_drafters(args)).items():
        if is_random(model) and args.acceptance is None:
            raise SpecError(f"{model} has random weights and answers nothing: give --acceptance to predict from costs")
        for spec in specs:
            split_plan(Spec.parse(spec))
        config = build(Config, {"model": model, **common.engine_options(args)}, "engine")
        choice_for(config)
        candidates.append(Candidate(config, specs))
    check_out(args.out, args.record)
    return (_asked if args.acceptance is None else _predicted)(args, Loader(), candidates)


def _asked(args: argparse.Namespace, loader: Loader, candidates: Sequence[Candidate]) -> int:
    """Every target answers prompts."""
    from forerun.lab.domains import data
    from forerun.lab.sweeps.size import answers, run_size

    workloads, asked = common.chosen_workloads(args), common.asked(args)
    run = _begin(args, loader, candidates, workloads)
    with common.kept(run), common.step_log(args) as log:
        figures, samples = run_size(loader, run, candidates, workloads, asked, log)
        said = answers(figures, candidates, f"{data(workloads, asked)}; every target visited twice")
        return common.deliver(args, run, _bench(args, loader, candidates), said, figures, samples)


def _predicted(args: argparse.Namespace, loader: Loader, candidates: Sequence[Candidate]) -> int:
    """Forwards are timed."""
    from forerun.lab.costs.formulas import expected_tokens
    from forerun.lab.sweeps.size import answers
    from forerun.lab.sweeps.size_costs import Timing, room, run_costs

    expected_tokens(args.acceptance, 1)  # refused before anything is loaded
    timing = Timing(args.context, min(args.blocks, 3) if args.quick else args.blocks, 2 if args.quick else 5)
    candidates = room(candidates, timing)
    run = _begin(args, loader, candidates)
    with common.kept(run):
        figures, samples = run_costs(loader, run, candidates, args.acceptance, timing)
        dataset = (
            f"random tokens, {timing.context} before each forward; {timing.blocks} blocks of {timing.repeats} rounds"
        )
        said = answers(figures, candidates, dataset, "T(1) of the same target: a prediction from an acceptance given")
        return common.deliver(args, run, _bench(args, loader, candidates), said, figures, samples)


def _begin(
    args: argparse.Namespace, loader: Loader, candidates: Sequence[Candidate], workloads: Sequence[Workload] = ()
) -> Run:
    first = loader.open(candidates[0].config)
    return common.begin(
        args,
        "size",
        workloads=workloads,
        drafters=[spec for candidate in candidates for spec in candidate.drafters],
        fingerprint=first.target.spec.fingerprint,
        stack=first.stack,
    )


def _bench(args: argparse.Namespace, loader: Loader, candidates: Sequence[Candidate]) -> dict[str, object]:
    from forerun.lab.sweeps.passes import provenance

    return provenance(loader, candidates[0].config, model=", ".join(args.model))
