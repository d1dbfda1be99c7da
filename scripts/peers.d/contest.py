"""Everyone on the same weights, in one run of interleaved rounds; each in a process of its own that sleeps in between.

A ratio is the peer's time over ours within one round; what is reported is the median of the rounds, with the lowest and
the highest. Times alone mean little on a machine that is not idle.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figures import FIGURES, Figure, Times, agreement, ratios, summary, turns, workers
from turn import CACHED, CONTEXT, PROMPT, ROWS, TOKENS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ENVIRONMENT = ROOT / "build" / "peers"
NEEDS = ("xllamacpp==2026.10.11549", "torch==2.13.0", "transformers==5.24.0", "accelerate>=1.0", "gguf>=0.13")
FILES = {"bf16": "BF16", "int8": "Q8_0"}  # llama.cpp's names; its q4 is the file itself
WEIGHTS = {"bf16": "bf16", "int8": "int8", "q4": "auto"}
QUIET = 0.5  # load average of a machine that is ours alone
PAUSE = 0.05  # seconds after a turn, until threads that still spin have gone to sleep


class Worker:
    """A process that does one task when it is told to."""

    def __init__(self, name: str, command: Sequence[str], threads: int) -> None:
        self.name = name
        self.log = ENVIRONMENT / f"{name.replace('/', '-')}.log"
        env = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
        env |= {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=env, cwd=ROOT
            )
        self.facts: dict[str, Any] = self._hear()["ready"]

    def do(self, task: str) -> dict[str, Any]:
        """What the worker says to the task."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"task": task}) + "\n")
        self.process.stdin.flush()
        return self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise SystemExit(f"{self.name} ended with status {code}; {self.log.relative_to(ROOT)} ends with:\n{tail}")
        return json.loads(line)

    def close(self) -> None:
        """Let it go."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def environment() -> Path:
    """Python of the peers' environment, made once for these requirements."""
    mark = ENVIRONMENT / f"ready-{hashlib.sha256(' '.join(NEEDS).encode()).hexdigest()[:12]}"
    python = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not mark.exists():
        say(f"making {ENVIRONMENT.relative_to(ROOT)}: {', '.join(NEEDS)}")
        if not python.exists():
            venv.create(ENVIRONMENT, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *NEEDS]
        subprocess.run(pip, check=True)
        mark.touch()
    return python


def command(name: str, python: Path, model: Path, threads: int, prompt: list[int], runtime: str) -> list[str]:
    """How a worker is started."""
    who, _, weights = name.partition("/")
    ids = json.dumps(prompt)
    if who == "ours":
        options = {"runtime": runtime, "weights": WEIGHTS[weights]}
        if runtime == "torch":
            options = {"runtime": runtime, "dtype": "bfloat16"}
        script = [sys.executable, str(HERE / "worker_ours.py")]
        return [*script, str(model), str(threads), ids, json.dumps(options)]
    if who == "transformers":
        return [str(python), str(HERE / "worker_transformers.py"), str(model), str(threads), ids]
    if weights in FILES:
        from convert import converted

        from forerun.weights.pull import home

        model = converted(model, FILES[weights], home() / "peers")
    return [str(python), str(HERE / "worker_llama.py"), str(model), str(threads), ids]


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


def contest(figures: Sequence[Figure], team: dict[str, Worker], rounds: int) -> tuple[list[Times], dict[str, Any]]:
    """Times of every round, and what else the workers said last."""
    times: list[Times] = []
    said: dict[str, Any] = {}
    for turn in range(-1, rounds):  # the first is for warming up
        here: Times = {}
        for task, name in turns(figures, turn):
            reply = team[name].do(task)
            here[task, name] = reply.pop("ms")
            said.setdefault(f"{name} {task}", []).append(reply)
            time.sleep(PAUSE)
        say(f"round {turn + 1} of {rounds}: " + ", ".join(f"{n} {t} {ms:.1f}" for (t, n), ms in here.items()))
        if turn >= 0:
            times.append(here)
    return times, said


def report(
    figures: Sequence[Figure], times: list[Times], said: dict[str, Any], team: dict[str, Worker]
) -> dict[str, Any]:
    """Every figure, with its spread."""
    found = ratios(figures, times)
    spread = {name: summary(values) for name, values in found.items()}
    answers = {key: replies[-1]["text"] for key, replies in said.items() if "text" in replies[-1]}
    extra = {}
    for key, replies in said.items():
        for what in ("loop_ms", "one_row_ms"):
            if what in replies[-1]:
                extra[f"{key} {what.removesuffix('_ms')}"] = summary([reply[what] for reply in replies[1:]])
    return {
        "ratios": {name: entry["median"] for name, entry in spread.items()},
        "spread": spread,
        "ms": {f"{n} {t}": summary([here[t, n] for here in times]) for t, n in times[0]} | extra,
        "same_text": {
            f.name: agreement(answers[f"{f.ours} decode"], answers[f"{f.peer} decode"])
            for f in figures
            if f.task == "decode"
        },
        "tokens": TOKENS, "context": CONTEXT, "rows8": [CACHED, ROWS], "prompt": PROMPT, "rounds": len(times),
        "workers": {name: worker.facts for name, worker in team.items()},
    }  # fmt: skip


def main(doc: str | None) -> int:
    """Run the contest and write what came of it."""
    options = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [figure.name for figure in FIGURES]
    options.add_argument("--only", metavar="NAME", choices=names, action="append", help=f"one of {', '.join(names)}")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--runtime", choices=("native", "torch"), default="native", help="ours; torch does bf16 alone")
    options.add_argument("--out", metavar="NAME", default="peers", help="results/NAME.json; - writes none (peers)")
    options.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = options.parse_args()
    if args.rounds < 1 or args.threads < 1:
        options.error("--rounds and --threads are whole numbers from 1 up")
    figures = [figure for figure in FIGURES if not args.only or figure.name in args.only]
    if args.runtime == "torch":
        figures = [figure for figure in figures if figure.ours == "ours/bf16"]
    if not figures:
        options.error("none of these figures can be had with --runtime torch")
    found = run(figures, args.rounds, args.threads, args.runtime)
    print(table(found))
    write(args.out, found, args.threads, partial=len(figures) < len(FIGURES))
    if args.json:
        print(json.dumps(found))
    return 0


def run(figures: Sequence[Figure], rounds: int, threads: int, runtime: str) -> dict[str, Any]:
    """Start everyone, let them take turns, send them home."""
    from forerun.weights.pull import resolve

    python, model = environment(), resolve("smollm2")
    load = os.getloadavg()[0]
    if load > QUIET:
        say(
            f"warning: the machine is busy (load {load:.1f}). Threads that wait by spinning, as those of llama.cpp "
            "and torch do, then wait for time slices, and ours that sleep do not: do not quote these ratios"
        )
    words = words_of(model)
    prompt = prompt_ids(words)
    team: dict[str, Worker] = {}
    try:
        for name in workers(figures):
            say(f"starting {name}")
            team[name] = Worker(name, command(name, python, model, threads, prompt, runtime), threads)
        times, said = contest(figures, team, rounds)
        for replies in said.values():
            for reply in replies:
                if "tokens" in reply:  # transformers has no tokenizer loaded
                    reply["text"] = words.decode(reply.pop("tokens"))
        return {**report(figures, times, said, team), "load_at_start": load}
    finally:
        for worker in team.values():
            worker.close()


def table(found: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [f"{'peer / ours':30}{'median':>8}{'lowest':>8}{'highest':>8}{'same text':>12}"]
    for name, entry in found["spread"].items():
        numbers = "".join(f"{entry[key]:8.2f}" for key in ("median", "lowest", "highest"))
        lines.append(f"{name:30}{numbers}{same(found, name):>12}")
    lines += ["", f"{'milliseconds':30}{'median':>8}{'lowest':>8}{'highest':>8}"]
    for name, entry in found["ms"].items():
        lines.append(f"{name:30}" + "".join(f"{entry[key]:8.2f}" for key in ("median", "lowest", "highest")))
    return "\n".join([*lines, "", "llama.cpp is xllamacpp's wheel, an AVX2 build; decode is for one token"])


def same(found: dict[str, Any], name: str) -> str:
    """How far both answers are the same: all of it only if both round alike."""
    return f"{found['same_text'][name]:.0%}" if name in found["same_text"] else "-"


def write(name: str, found: dict[str, Any], threads: int, partial: bool) -> None:
    """Write results/NAME.json, unless some figures were left out."""
    from forerun.lab.machine import provenance, write_whole

    if name == "-" or partial:
        say("not written: " + ("some figures were left out" if partial else "asked not to be"))
        return
    bench = {**provenance(["python", "scripts/peers", *sys.argv[1:]]), "threads": threads}
    write_whole(ROOT / "results" / f"{name}.json", json.dumps({"bench": bench, "figures": found}, indent=1) + "\n")


def say(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)
