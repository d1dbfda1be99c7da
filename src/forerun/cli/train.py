"""Train a drafting head for a model from nothing but the model.

example: forerun train eagle3 -m smollm2 --out heads/eagle3 --minutes 60
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.cli.tell import tell

if TYPE_CHECKING:
    from forerun.train.gather import Progress
    from forerun.train.run import Watch
    from forerun.train.trainer import State, Told

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
    parser.add_argument("--minutes", type=float, help="plan data and training to fit this time")
    parser.add_argument("--steps", type=int, help="steps of training, in the place of a time")
    data = parser.add_argument_group("data")
    data.add_argument("--corpus", type=Path, help="folder of the data, made, gone on with or used (OUT/corpus)")
    data.add_argument("--also", type=Path, action="append", default=[], help="more data that was captured before")
    data.add_argument("--tokens", type=int, help="answered tokens to gather (200000, or what --minutes allow)")
    data.add_argument("--data", type=Path, action="append", default=[], help="prompts of your own; may be given again")
    data.add_argument(
        "--domain", help="what the target asks itself: code:2,math,chat; a file of examples; a description"
    )
    data.add_argument("--avoid", type=Path, action="append", default=[], help="evaluation sets to keep out of the data")
    data.add_argument("--taps", type=_numbers, help="layers whose inputs are captured, as 2,15,27")
    data.add_argument("--answer-tokens", type=int, default=256, help="most of an answer (256)")
    data.add_argument("--width", type=int, default=160, help="conversations held at a time (160)")
    data.add_argument("--weights", default="bf16", help="of the target while it answers (bf16)")
    head = parser.add_argument_group("head")
    head.add_argument(
        "--from",
        dest="begin",
        type=Path,
        metavar="HEAD",
        help="folder of a head to begin from, of this kind or a near one",
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
    from dataclasses import replace

    from forerun.train.conversation import Manner
    from forerun.train.run import DEFAULT_MIX, Job, gather_only
    from forerun.train.run import run as train

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
    job = Job(
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
        domain=args.domain or DEFAULT_MIX,
        avoid=tuple(args.avoid),
        taps=args.taps,
        manner=replace(Manner(), answer_tokens=args.answer_tokens),
        recipe=given,
        rate=args.rate,
        batch=args.batch,
        measures=args.measures,
        seed=args.seed,
        width=args.width,
        weights=args.weights,
        threads=args.threads,
        device=args.device,
        command=shlex.join(["forerun", *sys.argv[1:]]),
    )
    with Screen() as screen:
        card = gather_only(job, screen.watch()) if args.kind == "corpus" else train(job, screen.watch())
    tau = f", {card['tau']['all']:.2f} tokens a pass on held-out prompts" if "tau" in card else ""
    tell(args, f"{args.kind}: written to {args.out}{tau}", card)
    return 0


class Screen:
    """Progress bars on stderr, each from its first news on."""

    def __init__(self) -> None:
        self._bars: dict[str, Any] = {}

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        for bar in self._bars.values():
            bar.close()

    def _bar(self, what: str, unit: str) -> Any:
        from tqdm import tqdm

        if what not in self._bars:
            self._bars[what] = tqdm(unit=f" {unit}", desc=what, file=sys.stderr, mininterval=5)
        return self._bars[what]

    def watch(self) -> Watch:
        """What a run tells of itself."""
        from forerun.train.run import Watch

        return Watch(self._corpus, self._training, lambda text: print(text, file=sys.stderr))

    def _corpus(self, progress: Progress) -> None:
        bar = self._bar("answers", "tokens")
        bar.update(progress.learnt - bar.n)
        bar.set_postfix(conversations=progress.samples, dropped=progress.dropped, refresh=False)

    def _training(self, state: State, told: Told, left: float) -> None:
        bar = self._bar("training", "steps")
        bar.total = state.steps or None
        bar.update(state.step - bar.n)
        tau = f"{state.taus[-1][1]:.2f}" if state.taus else "?"
        agree = " ".join(f"{value:.2f}" for value in told.agreement)
        bar.set_postfix_str(f"loss {told.loss:.3f}, agreement {agree}, tau {tau}", refresh=False)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"layer numbers look like 2,15,27; got {text!r}") from None
