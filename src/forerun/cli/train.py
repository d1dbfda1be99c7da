"""Train a drafting head for a model from nothing but the model.

example: forerun train eagle3 -m smollm2 --out heads/eagle3 --minutes 60
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.cli.progress import Screen, clock
from forerun.cli.tell import tell

if TYPE_CHECKING:
    from forerun.train.job import Job
    from forerun.train.run import Made

KINDS = ("corpus", "eagle", "eagle3", "p-eagle", "medusa", "medusa2", "mtp", "draft")


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "kind",
        choices=KINDS,
        help="what to train; corpus: the data alone; medusa2: heads and a changed target; draft: a small model",
    )
    parser.add_argument("-m", "--model", required=True, help="the target, as for generate")
    parser.add_argument("--out", type=Path, required=True, help="folder of the head")
    parser.add_argument("--minutes", type=float, help="most of the time, from the beginning to the finished head")
    parser.add_argument("--steps", type=int, help="most steps of training (as many as there is time for)")
    parser.add_argument("--overwrite", action="store_true", help="write over what is finished in OUT, or begin anew")
    data = parser.add_argument_group("data")
    data.add_argument(
        "--corpus", type=Path, help="folder of the data: made if there is none, else only read (OUT/corpus)"
    )
    data.add_argument("--also", type=Path, action="append", default=[], help="more data that was captured before")
    data.add_argument("--tokens", type=int, help="answered tokens to learn from (200000, or what --minutes allow)")
    data.add_argument(
        "--data",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="conversations of your own, whose users' turns and system messages are told to the target: .jsonl or "
        ".json (messages, ShareGPT's conversations, turns, prompt, instruction, question or text), .parquet with such "
        "columns, .txt (a prompt a line, or blocks parted by ---), a folder of .txt; may be given again",
    )
    data.add_argument(
        "--domain", help="what the target asks itself: code:2,math,chat; a file of examples; a description"
    )
    data.add_argument("--avoid", type=Path, action="append", default=[], help="evaluation sets to keep out of the data")
    data.add_argument("--taps", type=_numbers, help="layers whose inputs are captured, as 2,15,27")
    data.add_argument("--answer-tokens", type=int, help="most of an answer (256)")
    data.add_argument("--width", type=int, default=160, help="conversations held at a time (160)")
    data.add_argument("--weights", help="of the target while it answers and tau is measured, on a CPU (bf16)")
    head = parser.add_argument_group("head")
    head.add_argument(
        "--from",
        dest="begin",
        metavar="HEAD",
        help="a head to begin from, of this kind or a near one: a folder, or a name as for -d (eagle3)",
    )
    head.add_argument("--draft-vocab", type=int, help="words that it can guess (16384); 0 is all")
    head.add_argument("--layers", type=int, help="decoder layers of it (1; 4 of a draft model)")
    head.add_argument("--unroll", type=int, help="unrolled steps, Medusa heads, or P-EAGLE's depths")
    head.add_argument("--loss", help="kl, tv, lk or nla (kl)")
    head.add_argument("--own-end", action=argparse.BooleanOptionalAction, help="learn a vocabulary end of its own")
    head.add_argument(
        "--keep-end", action="store_const", const=True, help="leave the vocabulary's end of --from as it is"
    )
    course = parser.add_argument_group("training")
    course.add_argument("--rate", type=float, default=3e-3, help="highest learning rate (0.003)")
    course.add_argument("--batch", type=int, default=2048, help="tokens of a step, padding included (2048)")
    course.add_argument("--measures", type=int, default=4, help="how often tau is measured on the way (4)")
    course.add_argument("--seed", type=int, default=0)
    course.add_argument("--threads", type=int)
    course.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (cpu)")


def run(args: argparse.Namespace) -> int:
    """Train; the exit status."""
    from forerun.train.halting import Halt
    from forerun.train.news import Watch
    from forerun.train.run import gather_only
    from forerun.train.run import run as train

    job = _job(args)
    halt = Halt()
    try:
        with Screen() as screen, halt.listening():
            watch = Watch(screen.news, screen.said, halt)
            made = gather_only(job, watch) if args.kind == "corpus" else train(job, watch)
    except KeyboardInterrupt:
        print(f"interrupted; {_kept(job)}", file=sys.stderr)
        return 128 + halt.signal
    tell(args, "\n".join(_outcome(job, made)), made.card)
    return 0


def _kept(job: Job) -> str:
    """What an interruption has left."""
    folder = (job.corpus or job.out) if job.kind == "corpus" else job.out
    if not (folder / "run.json").exists():
        return "there was nothing to save yet"
    return f"what is done is saved in {folder}, and the same command goes on from there"


def _job(args: argparse.Namespace) -> Job:
    from forerun.train.job import Job

    recipe = {
        "draft_vocab": args.draft_vocab or None,
        "layers": args.layers,
        "steps": args.unroll,
        "loss": args.loss,
        "own_end": args.own_end,
        "keep_end": args.keep_end,
    }
    given = {key: value for key, value in recipe.items() if value is not None}
    if args.draft_vocab == 0:
        given["draft_vocab"] = None
    return Job(
        args.kind,
        args.model,
        args.out,
        minutes=args.minutes,
        steps=args.steps,
        corpus=args.corpus,
        also=tuple(args.also),
        begin=args.begin,
        tokens=args.tokens,
        data=tuple(args.data),
        domain=args.domain,
        avoid=tuple(args.avoid),
        taps=args.taps,
        answer_tokens=args.answer_tokens,
        recipe=given,
        rate=args.rate,
        batch=args.batch,
        measures=args.measures,
        seed=args.seed,
        width=args.width,
        weights=args.weights,
        threads=args.threads,
        device=args.device,
        overwrite=args.overwrite,
        command=shlex.join(["forerun", *sys.argv[1:]]),
    )


def _outcome(job: Job, made: Made) -> list[str]:
    """What was made, what it is worth, and what one does with it."""
    card = made.card
    took = card.get("seconds", 0.0)
    took = clock(took["all"] if isinstance(took, dict) else took)
    if card["kind"] == "corpus":
        head = f"{card['folder']}: {card['conversations']} conversations, {card['learnt']:,} answered tokens"
        next_command = [
            "forerun",
            "train",
            "eagle3",
            "-m",
            job.model,
            "--corpus",
            card["folder"],
            "--out",
            "heads/eagle3",
        ]
        return [f"{head}, {_state(made, took)}", f"next: {shlex.join(next_command)}"]
    tau, begun = card["tau"], card.get("begun_from")
    before = f"; {begun['tau_here']:.2f} with {begun['head']}, which it began from" if begun else ""
    if begun and card["best_step"] == 0:
        before += ", and nothing that was learnt is better: this is that head as it was"
    what = {"draft": "a draft model", "medusa2": "a target with Medusa heads"}.get(card["kind"], f"{card['kind']} head")
    target, drafter = (job.out, job.out / "medusa") if card["kind"] == "medusa2" else (job.model, job.out)
    next_command = ["forerun", "generate", "-m", str(target), "-d", str(drafter), "Why do leaves fall?"]
    return [
        f"{job.out}: {what} of {card['parameters'] / 1e6:.1f}M numbers, {_state(made, took)}",
        f"tau {tau['all']:.2f} tokens a target pass on {tau['prompts']} held-out prompts{before}",
        f"next: {shlex.join(next_command)}",
    ]


def _state(made: Made, took: str) -> str:
    return f"made in {took}" if made.state == "made" else "done already; --overwrite makes it anew"


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"layer numbers look like 2,15,27; got {text!r}") from None
