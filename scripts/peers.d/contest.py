"""Everyone on the same weights, in one run of interleaved rounds; each in a process of its own that sleeps in between.

A ratio is the peer's time over ours within one round; what is reported is the median of the rounds, with the lowest and
the highest. Times alone mean little on a machine that is not idle.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import _bench
from environment import environment
from figures import FIGURES, Figure, Record, report, turns, workers

from forerun.lab.peers.arm import PAUSE_S, PEERS
from forerun.lab.peers.convert import converted
from forerun.lab.peers.files import CONVERTED
from forerun.lab.peers.process import Worker
from forerun.lab.peers.show import QUIET
from forerun.lab.run import Answers, Run
from forerun.weights.pull import home, resolve

OURS = Path(__file__).parent / "worker_ours.py"
WEIGHTS = {"bf16": "bf16", "int8": "int8", "q4": "auto"}
TOKENS, CONTEXT = 64, 256  # of an answer, and before it
CACHED, ROWS = 248, 8  # tokens in memory, and rows fed on top of them
PROMPT = 512  # tokens of a long prompt
ROOM = 1024  # tokens of context


def recruit(name: str, python: Path, model: Path, threads: int, runtime: str) -> Worker:
    """The worker `who/weights`, loaded."""
    say(f"starting {name}")
    who, _, weights = name.partition("/")
    settings: dict[str, Any] = {"file": str(model), "threads": threads, "context": ROOM}
    if who == "ours":
        native = {"runtime": "native", "weights": WEIGHTS[weights]}
        settings["options"] = native if runtime == "native" else {"runtime": runtime, "dtype": "bfloat16"}
        return Worker(name, Path(sys.executable), OURS, settings, threads)
    if who == "transformers":
        settings["dtype"] = "bfloat16"
    elif kind := CONVERTED.get(WEIGHTS[weights]):
        settings["file"] = str(converted(model, kind, home() / "peers"))
    return Worker(name, python, PEERS[who].module, settings, threads)


def words_of(model: Path) -> Any:
    """The model's tokenizer."""
    from forerun.text.from_gguf import from_gguf
    from forerun.text.words import TextWords
    from forerun.weights.folder import open_checkpoint

    return TextWords(from_gguf(open_checkpoint(model).metadata))


def prompt_ids(words: Any) -> list[int]:
    """Enough tokens of real text for every task."""
    from forerun.workloads.suites import suite

    ids = words.encode("\n".join(prompt.text for name in ("dialogue", "edit") for prompt in suite(name)), bos=False)
    return ids[:PROMPT]


def ask(worker: Worker, task: str, ids: Sequence[int]) -> dict[str, Any]:
    """The worker's reply to a task; `ms` in it is what is compared."""
    if task == "decode":
        reply = worker.do("answer", ids=ids[:CONTEXT], max_tokens=TOKENS, ends=[])
        return {**reply, "ms": 1e3 * reply["decode_s"] / (len(reply["tokens"]) - 1)}
    if task == "rows8":
        return worker.do("rows", ids=ids[: CACHED + ROWS], held=CACHED)
    return worker.do("read", ids=ids[:PROMPT])


def contest(
    run: Run, figures: Sequence[Figure], team: dict[str, Worker], rounds: int, ids: Sequence[int]
) -> list[Record]:
    """What everyone said, round by round. One round more comes first, for warming up."""

    def round_of(turn: int) -> list[Record]:
        records = []
        for task, name in turns(figures, turn):
            records.append({"round": turn, "task": task, "worker": name, **ask(team[name], task, ids)})
            time.sleep(PAUSE_S)
        said = ", ".join(f"{record['worker']} {record['task']} {record['ms']:.1f}" for record in records)
        say(f"round {turn + 1} of {rounds}: {said}")
        return records

    round_of(-1)
    return [record for turn in range(rounds) for record in run.unit(f"round {turn}", partial(round_of, turn))]


def main(doc: str | None) -> int:
    """Run the contest and write what came of it."""
    options = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [figure.name for figure in FIGURES]
    options.add_argument("--only", metavar="NAME", choices=names, action="append", help=f"one of {', '.join(names)}")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--runtime", choices=("native", "torch"), default="native", help="ours; torch does bf16 alone")
    _bench.add_out(options, "peers")
    args = options.parse_args()
    if args.rounds < 1 or args.threads < 1:
        options.error("--rounds and --threads are whole numbers from 1 up")
    figures = [figure for figure in FIGURES if not args.only or figure.name in args.only]
    if args.runtime == "torch":
        figures = [figure for figure in figures if figure.ours == "ours/bf16"]
    if not figures:
        options.error("none of these figures can be had with --runtime torch")
    if args.record and len(figures) < len(FIGURES):
        options.error("--record takes all figures: leave out --only and --runtime torch")
    return compete(args, figures)


def compete(args: argparse.Namespace, figures: Sequence[Figure]) -> int:
    """Start everyone, let them take turns, send them home, and tell."""
    python, model = environment(), resolve("smollm2")
    load = os.getloadavg()[0]
    if load > QUIET:
        say(
            f"warning: the machine is busy (load {load:.1f}). Threads that wait by spinning, as those of llama.cpp "
            "and torch do, then wait for time slices, and ours that sleep do not: do not quote these ratios"
        )
    words = words_of(model)
    with _bench.measuring(args, "peers") as run, ExitStack() as stack:
        team: dict[str, Worker] = {}
        for name in workers(figures):
            team[name] = recruit(name, python, model, args.threads, args.runtime)
            stack.callback(team[name].close)
        records = contest(run, figures, team, args.rounds, prompt_ids(words))
        found = {
            **report(figures, records, words.decode),
            "tokens": TOKENS, "context": CONTEXT, "rows8": [CACHED, ROWS], "prompt": PROMPT, "rounds": args.rounds,
            "workers": {name: worker.facts for name, worker in team.items()}, "load_at_start": load,
        }  # fmt: skip
        return _bench.write(args, run, answers(found, args), found, records, threads=args.threads)


def answers(found: dict[str, Any], args: argparse.Namespace) -> Answers:
    """The five answers."""
    ours = [facts for name, facts in found["workers"].items() if name.startswith("ours")]
    weights = ", ".join(facts["weights"] for facts in ours)
    build = f"{ours[0]['runtime']} runtime ({ours[0]['isa']})"
    peers = sorted({name.partition("/")[0] for name in found["workers"]} - {"ours"})
    return Answers(
        relative_to="our engine without a drafter, in the same round: a ratio is the peer's time over ours",
        batch="1",
        stack=f"smollm2, {build}, weights {weights}, {args.threads} threads each; {', '.join(peers)} on the same ones",
        data=f"{TOKENS} tokens after {CONTEXT} of the suites dialogue and edit, greedy, {args.rounds} rounds",
        shape="none",
    )


def say(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)
