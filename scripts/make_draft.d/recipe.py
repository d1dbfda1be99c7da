"""The whole recipe: write answers, choose a cut, train, check, measure tau, say what was done."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from bridge import bridge
from distil import agreement, train
from folder import write_folder
from readme import readme
from student import cut
from synthesis import BATCH, KV_TOKENS, Answer, Pages, write
from tqdm import tqdm
from transformers import LlamaForCausalLM

import forerun
from forerun.core.errors import ForerunError, SpecError
from forerun.weights.folder import Checkpoint, open_checkpoint
from forerun.weights.pull import resolve

_CUTS = "0,1,2,29/0,1,28,29"
_FITTED = 40  # answers that bridges are fitted on: some 8,000 tokens, for 576 unknowns a line
_CHECKS_S = 45.0  # left at the end
_TAU = {"prompts": 3, "tokens": 96, "depth": 3}


def main(about: str | None) -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="smollm2", help="the target, a llama with tied embeddings")
    parser.add_argument("--out", type=Path, default=Path("build/draft"), help="the folder to write")
    parser.add_argument("--minutes", type=float, default=40.0, help="for everything, a third of it for answers (40)")
    parser.add_argument(
        "--cuts", default=_CUTS, help=f"layers to keep, the last one too; of several, / between, the best ({_CUTS})"
    )
    parser.add_argument("--rate", type=float, default=7e-4, help="highest learning rate (0.0007)")
    parser.add_argument("--rounds", type=int, help="rounds of some 180 prompts, whatever time that takes")
    parser.add_argument("--steps", type=int, help="training steps, whatever time that takes")
    parser.add_argument("--threads", type=int, default=None, help="of all there is to use (all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--answers", type=Path, help="keep the answers here, or take them from here")
    args = parser.parse_args()
    try:
        Recipe(args).run()
    except ForerunError as error:
        print(f"make_draft: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("make_draft: stopped; nothing was written but what --answers names", file=sys.stderr)
        return 130
    return 0


class Recipe:
    """One run; `report` gathers what it measured."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.start = perf_counter()
        self.budget_s: float = 60.0 * args.minutes
        self.report: dict[str, Any] = {"model": args.model, "seed": args.seed, "rate": args.rate}
        self.cuts = [_layers(text) for text in args.cuts.split("/")]
        if not self.budget_s > 0:
            raise SpecError(f"--minutes must be above 0, got {args.minutes}")

    def run(self) -> None:
        """All of it."""
        torch.manual_seed(self.args.seed)
        if self.args.threads:
            torch.set_num_threads(self.args.threads)
        checkpoint = open_checkpoint(resolve(self.args.model))
        self.check(checkpoint)
        pages = self.timed("answers_s", self.answers)
        held = [answer for answer in pages.answers if answer.held_out]
        kept = [answer for answer in pages.answers if not answer.held_out]
        if len({answer.greedy for answer in held}) < 2 or not kept:
            raise SpecError(f"only {len(pages.answers)} answers were written, too few to hold some out: more --minutes")
        self.report |= {"prompts": len(pages.answers) // 2, "answered_tokens": pages.tokens, "held_out": len(held)}
        model = self.timed("bridging_s", lambda: self.choose(checkpoint, kept, held))
        self.timed("training_s", lambda: self.train(model, kept, self.left()))
        self.report["after"] = asdict(agreement(model, held))
        write_folder(self.args.out, checkpoint, model)
        self.report["parameters"] = sum(p.numel() for p in model.parameters())
        self.report["megabytes"] = round((self.args.out / "model.safetensors").stat().st_size / 1e6, 1)
        self.report["tau"] = self.timed("tau_s", lambda: self.tau(pages.held_out_prompts))
        self.report["seconds"] = round(perf_counter() - self.start, 1)
        text = readme(self.report)
        (self.args.out / "README.md").write_text(text, encoding="utf-8")
        print(text)

    def check(self, checkpoint: Checkpoint) -> None:
        """SpecError for a model or a place that would fail after all the work."""
        config = checkpoint.config
        if config.get("model_type") != "llama" or config.get("tie_word_embeddings") is not True:
            got = f"{config.get('model_type')}, tie_word_embeddings={config.get('tie_word_embeddings')}"
            raise SpecError(f"make_draft cuts a llama with tied embeddings, {self.args.model} is {got}: take another")
        last = int(str(config["num_hidden_layers"])) - 1
        if wrong := [layers for layers in self.cuts if layers[-1] != last]:
            raise SpecError(f"--cuts asks for layers {wrong[0]}: they must end with the model's last, {last}")
        try:
            for folder in (self.args.out, *((self.args.answers.parent,) if self.args.answers else ())):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SpecError(f"cannot make a folder for what is written ({error}): choose another --out") from error

    def timed(self, name: str, part: Callable[[], Any]) -> Any:
        """What `part` returns; its seconds are noted."""
        start = perf_counter()
        result = part()
        self.report[name] = round(perf_counter() - start, 1)
        print(f"{name} {self.report[name]}", file=sys.stderr)
        return result

    def left(self) -> float:
        """Seconds that training may take."""
        return max(1.0, self.budget_s - _CHECKS_S - (perf_counter() - self.start))

    def answers(self) -> Pages:
        """Answers kept by an earlier run, or new ones."""
        kept: Path | None = self.args.answers
        if kept and kept.is_file():
            return torch.load(kept, weights_only=False)  # type: ignore[no-any-return]  # a file of our own
        rounds: int | None = self.args.rounds
        end = self.start + self.budget_s / 3
        took: list[float] = [perf_counter()]

        def more(done: int) -> bool:
            if rounds is not None:
                return done < rounds
            return done == 0 or took[-1] + (took[-1] - took[0]) / done < end

        with (
            forerun.load(self.args.model, max_batch=BATCH, kv_tokens=KV_TOKENS, threads=self.args.threads) as engine,
            tqdm(desc="answers", unit=" tokens", file=sys.stderr) as bar,
        ):

            def told(pages: Pages) -> None:
                took.append(perf_counter())
                bar.update(pages.tokens - bar.n)

            pages = write(engine, self.args.seed, more, told)
        if kept:
            torch.save(pages, kept)
        return pages

    def choose(self, checkpoint: Checkpoint, kept: list[Answer], held: list[Answer]) -> LlamaForCausalLM:
        """The cut that is nearest to the target once its gaps are bridged."""
        target = cut(checkpoint, range(int(str(checkpoint.config["num_hidden_layers"]))))
        best, models = -1.0, {}
        for layers in self.cuts:
            gaps = [i for i in range(len(layers) - 1) if layers[i + 1] != layers[i] + 1]
            model = cut(checkpoint, layers, biased=bool(gaps))
            alone = agreement(model, held)
            for place in gaps:
                bridge(model, target, place, layers[place + 1], kept[:: max(1, len(kept) // _FITTED)])
            near = agreement(model, held)
            print(f"layers {layers}, before and after bridging: {alone}, {near}", file=sys.stderr)
            models[",".join(map(str, layers))] = near.overlap
            if near.overlap > best:
                best, chosen = near.overlap, model
                self.report |= {"layers": layers, "cut": asdict(alone), "bridged": asdict(near)}
        self.report["cuts"] = models
        return chosen

    def train(self, model: LlamaForCausalLM, kept: list[Answer], seconds: float) -> None:
        """Train for so many seconds, or steps."""
        steps: int | None = self.args.steps
        start = perf_counter()
        recent: list[float] = []
        with tqdm(desc="training", total=steps, unit=" steps", file=sys.stderr, mininterval=5) as bar:

            def progress(done: int) -> float:
                return done / steps if steps else (perf_counter() - start) / seconds

            def told(step: int, loss: float) -> None:
                recent.append(loss)
                bar.update()
                bar.set_postfix(loss=f"{sum(recent[-50:]) / len(recent[-50:]):.3f}", refresh=False)

            self.report["steps"] = train(model, kept, self.args.rate, self.args.seed, progress, told)
        self.report["loss"] = round(sum(recent[-50:]) / len(recent[-50:]), 4)

    def tau(self, prompts: list[str]) -> dict[str, Any]:
        """Tokens per target pass on held-out prompts, greedy, with its drafts by depth."""
        draft = f"model:path={self.args.out},depth={_TAU['depth']}"
        with forerun.load(self.args.model, draft, reuse=False, threads=self.args.threads) as engine:
            results = [
                engine.generate(engine.chat(text), max_tokens=_TAU["tokens"]) for text in prompts[: _TAU["prompts"]]
            ]
        stats = [result.stats for result in results]
        emitted, passes = sum(s.emitted for s in stats), sum(s.target_passes for s in stats)
        each = [round(s.tau or 0.0, 3) for s in stats]
        return {"tau": round(emitted / passes, 3), "each": each, "emitted": emitted, **_TAU}


def _layers(text: str) -> list[int]:
    """`0,1,29` as numbers; SpecError for what is none."""
    try:
        layers = [int(part) for part in text.split(",")]
    except ValueError:
        layers = []
    if not layers or min(layers) < 0 or sorted(set(layers)) != layers:
        raise SpecError(f"--cuts takes ascending layers, as 0,1,29, or several such with / between; got {text!r}")
    return layers
