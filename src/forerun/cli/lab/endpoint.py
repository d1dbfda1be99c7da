"""The same prompts against any OpenAI-compatible server: latency, tokens a second, cost, speculation.

For each model and concurrency: time to first token, between tokens, whole answers (medians and 95 %), tokens a second
of a request and of all, retries and failures; models are compared prompt by prompt, the first one also with itself,
which is the noise floor. Tokens are counted by the server, never by events. Its speculation counters are read where it
has a metrics page (vLLM, llama.cpp, SGLang, TensorRT-LLM), and what it tells in each answer.

examples:
  forerun lab endpoint --url http://127.0.0.1:8000 --model A --concurrency 1,4,16 --prompts 48 --workload dialogue
  forerun lab endpoint --url https://api.example.com/v1 --model A --model B --prices 0.15,0.6 --out measured/api.json"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.cli.lab import common
from forerun.core.errors import SpecError

if TYPE_CHECKING:
    from forerun.lab.endpoint.session import Recount
    from forerun.lab.endpoint.setup import Setup, Told
    from forerun.lab.run import Answers
    from forerun.workloads.workload import Workload

KEY_ENV = "OPENAI_API_KEY"


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    server = parser.add_argument_group("server")
    server.add_argument("--url", required=True, help="the server, as http://127.0.0.1:8000 or …/v1")
    server.add_argument("--model", action="append", required=True, help="a model's name there; may be given again")
    server.add_argument("--api", choices=("chat", "completions"), default="chat", help="(chat)")
    server.add_argument("--key-env", default=KEY_ENV, metavar="NAME", help=f"variable that holds the key ({KEY_ENV})")
    server.add_argument("--metrics", metavar="URL", help="the Prometheus page (/metrics beside /v1)")
    server.add_argument("--timeout", type=float, default=300.0, help="most seconds of a request (300)")
    server.add_argument("--retries", type=int, default=3, help="after 429, 5xx or a broken connection (3)")
    server.add_argument(
        "--idle-wait",
        type=float,
        default=30.0,
        metavar="S",
        help="most seconds to wait for an idle server; 0: none (30)",
    )
    load = parser.add_argument_group("load")
    load.add_argument("--concurrency", default="1,4", metavar="N,…", help="requests at once (1,4)")
    load.add_argument(
        "--prefix",
        choices=("cold", "warm"),
        default="cold",
        help="cold: a line before each prompt keeps it out of the server's cache; warm: it is read once before (cold)",
    )
    load.add_argument("--prices", metavar="IN,OUT|FILE.json", help="per million tokens, or a table by model")
    load.add_argument("--prediction-from", metavar="reference|FILE", help="send an expected answer with each prompt")
    load.add_argument("--tokenizer", type=Path, metavar="FOLDER", help="count tokens of the texts as a cross-check")
    load.add_argument("--shape", default="", metavar="TEXT", help="how the server drafts, for the results (unknown)")
    common.add_data(parser, ("dialogue",), 12, 128)
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and tell."""
    from forerun.lab.endpoint.figures import figures
    from forerun.lab.endpoint.measure import measure
    from forerun.lab.endpoint.part import Part
    from forerun.lab.endpoint.plan import talks
    from forerun.lab.endpoint.prices import read_prices
    from forerun.lab.machine import provenance
    from forerun.lab.restored import restored

    workloads = common.chosen_workloads(args)
    talked = talks(workloads, args.turns, args.prediction_from)
    setup = _setup(args, len(talked))
    prices = read_prices(args.prices, setup.models)
    recount = _recount(args.tokenizer)
    measuring = common.begin(args, "endpoint", workloads=workloads)
    with common.kept(measuring):
        told, records = measure(measuring, setup, talked, recount)
        found = figures([restored(Part, record) for record in records], prices)
        bench = {**provenance(), "server": {"url": setup.address.base, **told.to_json()}}
        return common.deliver(args, measuring, bench, _answers(args, setup, told, workloads), found, records)


def _setup(args: argparse.Namespace, prompts: int) -> Setup:
    from forerun.lab.endpoint.client import Address
    from forerun.lab.endpoint.load import Patience
    from forerun.lab.endpoint.plan import blocks
    from forerun.lab.endpoint.request import Ask
    from forerun.lab.endpoint.setup import Setup

    levels = common.numbers("--concurrency", args.concurrency)
    if args.quick:
        levels = tuple(level for level in levels if level <= prompts) or (1,)
    for level in levels:
        blocks(range(prompts), level)
    key = os.environ.get(args.key_env) or None
    if key is None and args.key_env != KEY_ENV:
        raise SpecError(f"--key-env {args.key_env}: there is no such environment variable, or it is empty")
    tokens = common.least(args, "tokens")
    return Setup(
        address=Address.parse(args.url, args.metrics),
        models=tuple(args.model),
        levels=levels,
        ask=Ask(args.api, tokens, args.temperature, args.top_p, args.seed, args.ignore_eos),
        rounds=common.least(args, "rounds"),
        prefix=args.prefix,
        patience=Patience(args.retries),
        timeout_s=args.timeout,
        idle_s=args.idle_wait,
        key=key,
    )


def _recount(folder: Path | None) -> Recount | None:
    if folder is None:
        return None
    from forerun.text.from_folder import from_folder

    tokenizer = from_folder(folder)
    return lambda text: len(tokenizer.encode(text, bos=False))


def _answers(args: argparse.Namespace, setup: Setup, told: Told, workloads: list[Workload]) -> Answers:
    from forerun.lab.domains import data
    from forerun.lab.run import Answers

    first = setup.models[0]
    several = f"{first}, prompt by prompt in turn, and {first} asked again"
    return Answers(
        relative_to=several if len(setup.models) > 1 else f"nothing; noise: {first} asked again",
        batch=f"{', '.join(map(str, setup.levels))} requests at once, one after another as they end",
        stack=f"{told.software} at {setup.address.base}, {setup.ask.api}: {', '.join(setup.models)}",
        data=f"{data(workloads, common.asked(args))}; prompts {setup.prefix} in the server's cache",
        shape=args.shape or "unknown: the server's own",
    )
