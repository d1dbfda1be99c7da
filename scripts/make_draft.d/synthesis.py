"""Prompts that the target asks itself, its answers, and what it thought likely at every token of them.

The chat template is cut off inside the user's turn, and the target writes it to the end at temperature 1. Each prompt
is answered twice, greedily and at temperature 0.7. The probabilities come out of the same forwards, so they cost no
pass of their own, and they are those of the weights that will judge the drafts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from forerun import Engine
from forerun.core.draft import Draft, Verdict
from forerun.core.noise import Noise
from forerun.core.rows import Rows
from forerun.text.chat import render
from forerun.text.tokenizer import Tokenizer

TOP = 64
BATCH = 64
KV_TOKENS = BATCH * 512
_PROMPTS = 192  # of a round: enough that its end, where few sequences are left, costs little
_PROMPT_TOKENS, _ANSWER_TOKENS = 160, 160
_SHORTEST = 4  # tokens of a prompt or an answer that is kept
_HELD_OUT = 12  # one prompt in so many is never trained on
_WARMTHS = (0.0, 0.7)
STARTS = Path(__file__).parent / "starts.txt"


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt and an answer as ids; for each answered token the TOP likeliest ids and float16 chances, [n, TOP]."""

    prompt: Tensor
    answer: Tensor
    ids: Tensor
    chances: Tensor
    greedy: bool
    held_out: bool


@dataclass(frozen=True, slots=True)
class Pages:
    """All answers, and the texts of the held-out prompts."""

    answers: list[Answer]
    held_out_prompts: list[str]

    @property
    def tokens(self) -> int:
        return sum(len(answer.answer) for answer in self.answers)


class Recorder:
    """A verifier that notes the target's likeliest tokens under every root before the real one judges."""

    def __init__(self, verify: object) -> None:
        self._verify = verify
        self.seen: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._verify, name)

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        """The real verdict."""
        logits = torch.stack([rows.raw(b, 0) for b in range(len(draft.trees))]).float()
        values, ids = logits.topk(TOP)
        chances = (values - logits.logsumexp(-1, keepdim=True)).exp().half()
        for b in range(len(draft.trees)):
            self.seen.setdefault(rows.items[b].seq.id, []).append((ids[b].int(), chances[b]))
        return self._verify(draft, rows, noise)  # type: ignore[operator, no-any-return]


def write(engine: Engine, seed: int, more: Callable[[int], bool], told: Callable[[Pages], None]) -> Pages:
    """Rounds of prompts and answers while `more(rounds)` says so; `told` hears of each round."""
    rng = random.Random(seed)
    starts = [line for line in STARTS.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    starts = [line.replace("\\n", "\n") for line in starts]
    pages, known, rounds = Pages([], []), set[str](), 0
    while more(rounds):
        asked = [text for text in _prompts(engine, starts, rng) if text not in known]
        asked = list(dict.fromkeys(asked))
        known.update(asked)
        held = {text for i, text in enumerate(asked) if i % _HELD_OUT == 0}
        pages.held_out_prompts.extend(text for text in asked if text in held)
        for warmth in _WARMTHS:
            pages.answers.extend(_answers(engine, asked, held, warmth, rng))
        rounds += 1
        told(pages)
    return pages


def _prompts(engine: Engine, starts: Sequence[str], rng: random.Random) -> list[str]:
    """A round of user's turns that the target ended by itself."""
    begun = [rng.choice(starts) if rng.random() < 0.5 else "" for _ in range(_PROMPTS)]
    ids = [_opening(engine, start) for start in begun]
    texts: list[str] = []
    for start, prompt, result in zip(begun, ids, _each(engine, ids, 1.0, _PROMPT_TOKENS, rng), strict=True):
        if result.choices[0].finish_reason == "stop" and len(prompt) + len(result.choices[0].tokens) >= _SHORTEST:
            texts.append(start + result.text)
    return [text for text in texts if len(text.split()) > 2]


def _opening(engine: Engine, start: str) -> list[int]:
    """The ids of a conversation that stops inside the user's turn."""
    tokenizer: Tokenizer = engine.words.tokenizer  # type: ignore[union-attr]
    text = render(tokenizer, [{"role": "user", "content": start}], add_generation_prompt=False)
    return tokenizer.encode(text.rpartition(tokenizer.specials["eos_token"])[0], bos=False)


def _each(engine: Engine, prompts: list[list[int]], warmth: float, most: int, rng: random.Random) -> list:  # type: ignore[type-arg]
    """Results in the order of the prompts, each with a seed of its own."""
    requests = [engine.add(prompt, temperature=warmth, max_tokens=most, seed=rng.getrandbits(62)) for prompt in prompts]
    while engine.busy and not all(engine.finished(request) for request in requests):
        engine.step()
    return [engine.collect(request) for request in requests]


def _answers(engine: Engine, texts: list[str], held: set[str], warmth: float, rng: random.Random) -> list[Answer]:
    judge = engine.parts.verify
    recorder = Recorder(judge)
    engine.parts = replace(engine.parts, verify=recorder)  # type: ignore[arg-type]
    try:
        prompts = [engine.chat(text) for text in texts]
        results = _each(engine, prompts, warmth, _ANSWER_TOKENS, rng)
    finally:
        engine.parts = replace(engine.parts, verify=judge)
    found = []
    for text, prompt, result in zip(texts, prompts, results, strict=True):
        ids, chances = (torch.stack(part) for part in zip(*recorder.seen[result.request_id], strict=True))
        answer = torch.tensor(result.choices[0].token_ids)
        if len(answer) >= _SHORTEST:
            found.append(Answer(torch.tensor(prompt), answer, ids, chances, warmth == 0.0, text in held))
    return found
