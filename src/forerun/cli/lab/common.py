"""What experiments share: options, a bench and a run from them, and the way results are told."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from forerun.cli.common import ENGINE
from forerun.cli.common import add_engine as of_all
from forerun.cli.tell import tell
from forerun.core.errors import SpecError

if TYPE_CHECKING:
    from forerun.lab.bench import Bench
    from forerun.lab.paired import Asked, LogFor
    from forerun.lab.run import Answers, Run
    from forerun.workloads.workload import Workload

QUICK = {"prompts": 3, "tokens": 32, "rounds": 1}
_SAID = ("command", "experiment", "debug", "json", "out", "record", "log_steps", "version")
"""Options that are not what is measured."""


def described(module: ModuleType) -> dict[str, Any]:
    """How a parser tells of the command that a module is: by its docstring."""
    summary, _, more = (module.__doc__ or "").partition("\n\n")
    return {"description": summary, "epilog": more, "formatter_class": argparse.RawDescriptionHelpFormatter}


def add_engine(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Which model runs, and how; drafters are the experiment's."""
    of_all(parser, ("drafter", *without))


def add_drafters(parser: argparse.ArgumentParser, drafters: Sequence[str]) -> None:
    """Which drafters are compared."""
    parser.add_argument(
        "-d",
        "--drafter",
        action="append",
        metavar="NAME[:KEY=VALUE,…]",
        help=f"a drafter to compare; may be given again ({', '.join(drafters)})",
    )
    parser.set_defaults(default_drafters=tuple(drafters))


def add_data(
    parser: argparse.ArgumentParser,
    workloads: Sequence[str],
    prompts: int,
    tokens: int,
    rounds: int = 1,
    without: Collection[str] = (),
) -> None:
    """Which prompts are asked, and how long the answers are; `without` as for `add_engine`."""
    data = parser.add_argument_group("prompts and answers")
    data.add_argument(
        "--workload",
        action="append",
        metavar="NAME|FILE|hub:NAME",
        help=f"a shipped suite, a file of prompts or a public set; may be given again ({', '.join(workloads)})",
    )
    for name, kind, default, help in (
        ("prompts", int, prompts, f"most prompts of each ({prompts})"),
        ("tokens", int, tokens, f"most tokens of an answer ({tokens})"),
        ("rounds", int, rounds, f"how often everything is asked ({rounds})"),
        ("turns", int, None, "most turns of a conversation (all)"),
        ("temperature", float, 0.0, "0 is greedy (0)"),
        ("top_p", float, 1.0, "(1)"),
        ("seed", int, 0, "of draws, and of the order of the arms (0)"),
    ):
        if name not in without:
            data.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, help=help)
    if "ignore_eos" not in without:
        data.add_argument("--ignore-eos", action="store_true", help="go on behind the end of text: equal work for all")
    parser.set_defaults(default_workloads=tuple(workloads))


def add_output(parser: argparse.ArgumentParser, *, log: bool = False) -> None:
    """Where results go."""
    out = parser.add_argument_group("output")
    out.add_argument(
        "--out", type=Path, metavar="measured/NAME.json", help="write the results there, whole or not at all"
    )
    out.add_argument(
        "--record", action="store_true", help="let --out be a file among the results that ship with the sources"
    )
    out.add_argument("--quick", action="store_true", help="few prompts and short answers: to see that it works")
    if log:
        out.add_argument(
            "--log-steps", type=Path, metavar="FILE.parquet", help="log every step of every drafter (slows them)"
        )


def chosen_drafters(args: argparse.Namespace) -> list[str]:
    """Those given, or the experiment's own."""
    return list(dict.fromkeys(args.drafter or args.default_drafters))


def chosen_workloads(args: argparse.Namespace) -> list[Workload]:
    """Those given, or the experiment's own, with so many prompts of each; SpecError for names given twice."""
    from forerun.workloads.workload import workload

    if args.prompts < 1:
        raise SpecError(f"--prompts takes a whole number from 1 up, got {args.prompts}")
    found = [workload(name).take(least(args, "prompts")) for name in args.workload or args.default_workloads]
    names = [work.name for work in found]
    if len(set(names)) < len(names):
        raise SpecError(f"workloads need different names, got {', '.join(names)}")
    return found


def asked(args: argparse.Namespace) -> Asked:
    """How prompts are asked."""
    from forerun.lab.paired import Asked

    params: dict[str, Any] = {"max_tokens": least(args, "tokens")}
    if args.ignore_eos:
        params["ignore_eos"] = True
    if args.temperature or args.top_p != 1.0:
        params |= {"temperature": args.temperature, "top_p": args.top_p, "seed": args.seed}
    return Asked(params, least(args, "rounds"), args.turns, args.seed)


def least(args: argparse.Namespace, name: str) -> int:
    """An option's value, or what --quick allows if that is less."""
    value: int = getattr(args, name)
    return min(value, QUICK[name]) if args.quick and name in QUICK else value


def engine_options(args: argparse.Namespace) -> dict[str, object]:
    """Fields of Config that were given."""
    return {name: getattr(args, name) for name in ENGINE if getattr(args, name, None) is not None}


@contextmanager
def session(
    args: argparse.Namespace,
    experiment: str,
    *,
    workloads: Sequence[Workload] = (),
    drafters: Sequence[str] = (),
    **engine: object,
) -> Iterator[tuple[Bench, Run]]:
    """The bench and the run of an experiment, which asks `workloads` and measures `drafters` (specs): what they are is
    part of what the run is known again by. `engine` are further fields of Config.

    Where it is broken off, what was measured is kept beside --out, and how to go on is said.
    """
    from forerun.assemble import Config
    from forerun.core.options import build
    from forerun.lab import machine
    from forerun.lab.bench import Bench
    from forerun.lab.run import check_out

    config = build(Config, {"model": args.model, **engine_options(args), **engine}, "engine")
    check_out(args.out, args.record)
    opened = machine.moment()  # before the model is loaded, which is a load itself
    bench = Bench.open(config)
    run = begin(
        args,
        experiment,
        workloads=workloads,
        drafters=drafters,
        opened=opened,
        fingerprint=bench.target.spec.fingerprint,
        stack=bench.stack,
    )
    with kept(run):
        yield bench, run


def begin(
    args: argparse.Namespace,
    experiment: str,
    *,
    workloads: Sequence[Workload] = (),
    drafters: Sequence[str] = (),
    opened: Mapping[str, object] | None = None,
    **known: object,
) -> Run:
    """The run that the options ask for; whatever does not change what is measured is left out of the ask, and what
    options do not tell is put in: `forerun.lab.run.facts`, and `known` facts. `opened` is the moment it began, now if
    None. A run that logs its steps is never gone on with: of kept units the steps would be missing."""
    from forerun.lab import machine
    from forerun.lab.run import Run, facts

    opened = machine.moment() if opened is None else opened
    options = {key: _plain(value) for key, value in vars(args).items() if key not in _SAID}
    if hasattr(args, "log_steps"):
        options["log_steps"] = args.log_steps is not None  # a drafter that is asked for signals is slower
    ask = {**options, **facts(opened, workloads, drafters), **known}
    return Run(experiment, args.out, ask, resume=not options.get("log_steps"), record=args.record, opened=opened)


@contextmanager
def step_log(args: argparse.Namespace) -> Iterator[LogFor | None]:
    """The log of steps that --log-steps asks for."""
    if args.log_steps is None:
        yield None
        return
    from forerun.lab.steplog import StepLog

    with StepLog(args.log_steps) as log:
        yield log.listener


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


@contextmanager
def kept(run: Run) -> Iterator[None]:
    """Says at first what becomes of an interrupted run, and where the state of this one is if it is broken off."""
    try:
        for notice in run.notices:
            print(notice, file=sys.stderr)
        yield
    except BaseException:
        run.discard()
        if run.keeps and run.done:
            print(f"{run.done} units are kept in {run.partial}: the same command goes on from there", file=sys.stderr)
        raise


def deliver(
    args: argparse.Namespace,
    run: Run,
    bench: Mapping[str, object],
    answers: Answers,
    figures: Mapping[str, Any],
    samples: Sequence[object],
) -> int:
    """Write the results if they have a name, and tell them."""
    from forerun.lab.experiments import views
    from forerun.lab.views import spoken

    whole = run.finish(bench, answers, figures, samples)
    bench_said = [f"{name.replace('_', ' ')}: {said}" for name, said in whole["answers"].items()]
    said = "\n".join([spoken(views(run.experiment, whole["figures"])), "", *bench_said])
    tell(args, said, {"experiment": run.experiment, "answers": whole["answers"], "figures": whole["figures"]})
    if run.out is not None:
        print(f"written to {run.out}", file=sys.stderr)
    return 0


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers from 1 up, separated by commas; SpecError for anything else."""
    if not re.fullmatch(r"[1-9]\d{0,7}(,[1-9]\d{0,7})*", text, re.ASCII):
        raise SpecError(f"{option} takes whole numbers from 1 up, separated by commas (as 1,16,64), got {text!r}")
    return tuple(map(int, text.split(",")))


def decimals(option: str, text: str) -> tuple[float, ...]:
    """Numbers from 0 up, separated by commas; SpecError for anything else."""
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?(,\d{1,6}(\.\d{1,6})?)*", text, re.ASCII):
        raise SpecError(f"{option} takes numbers from 0 up, separated by commas (as 0,0.7,1), got {text!r}")
    return tuple(map(float, text.split(",")))


def words(option: str, text: str) -> list[str]:
    """Different names, separated by commas; SpecError if there is none."""
    found = list(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
    if not found:
        raise SpecError(f"{option} takes names, separated by commas, got {text!r}")
    return found
