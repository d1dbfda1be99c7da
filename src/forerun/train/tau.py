"""What a head is worth: tokens per target pass on prompts that it was not trained on, measured by serving them.

It is the tau of `forerun lab domains`: greedy answers of so many tokens, all passes and all tokens of all answers
summed, whole trees of the drafter's own shape. `held_out.jsonl` in a head's folder are the prompts, so that whoever
likes measures them again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from forerun.assemble import Foundation, choice_for
from forerun.core.errors import SpecError
from forerun.engine.engine import Engine
from forerun.engine.results import Result
from forerun.targets.threads import torch_threads
from forerun.train.corpus import Corpus, Place
from forerun.train.halting import Halt
from forerun.train.made import Made
from forerun.train.news import NOBODY, News, Watch

TOKENS = 96
"""Of an answer, as `forerun lab` measures it."""
_ALL_ROWS = f"rows={1 << 20}"  # all prompts draft whole trees side by side: what counts is tokens, not time


@dataclass(frozen=True, slots=True)
class Question:
    """A held-out prompt."""

    domain: str
    text: str
    system: str = ""

    def messages(self) -> list[dict[str, object]]:
        """As a conversation."""
        told: list[dict[str, object]] = [{"role": "system", "content": self.system}] if self.system else []
        return [*told, {"role": "user", "content": self.text}]


@dataclass(frozen=True, slots=True)
class Tau:
    """Tokens per target pass, bonus included: of all prompts together, and by domain."""

    all: float
    by_domain: dict[str, float]
    prompts: int
    tokens: int = TOKENS


@dataclass(frozen=True, slots=True)
class Measurer:
    """Serves held-out prompts greedily, `tokens` tokens of each answer."""

    base: Foundation
    prompts: Sequence[Question]
    tokens: int = TOKENS
    plan: str = ""
    """Options of the drafter, as depth=5,nodes=15."""
    watch: Watch = field(default_factory=lambda: NOBODY)

    @property
    def native(self) -> bool:
        """Whether the compiled runtime serves, which wants torch's threads out of its way."""
        return choice_for(self.base.config).runtime == "native"

    def __call__(self, made: Made) -> Tau:
        """The tau of `made` with its drafter's own plan, or this one's; Halted where it is told to halt."""
        emitted: dict[str, int] = defaultdict(int)
        passes: dict[str, int] = defaultdict(int)
        with (
            torch_threads(1 if self.native else None),
            made.serving(self.base, ",".join(filter(None, (self.plan, _ALL_ROWS)))) as engine,
        ):  # as a served model has it
            asked = [engine.chat(one.messages()) if engine.has_template else one.text for one in self.prompts]
            results = answers(engine, asked, self.tokens, self.watch.halt, self._tell)
        for one, result in zip(self.prompts, results, strict=True):
            stats = result.choices[0].stats
            emitted[one.domain] += stats.emitted
            passes[one.domain] += stats.target_passes
        taus = {domain: emitted[domain] / max(1, passes[domain]) for domain in emitted}
        return Tau(sum(emitted.values()) / max(1, sum(passes.values())), taus, len(self.prompts), self.tokens)

    def _tell(self, said: int) -> None:
        self.watch.news(News("measuring", said, len(self.prompts) * self.tokens, "tokens"))


def answers(
    engine: Engine, asked: Sequence[str | list[int]], tokens: int, halt: Halt, told: Callable[[int], None]
) -> list[Result]:
    """Greedy answers to all of `asked`, side by side; `told` hears how many tokens are said, those not needed too."""
    requests = [engine.add(prompt, max_tokens=tokens, temperature=0.0) for prompt in asked]
    said = 0
    while not all(engine.finished(request) for request in requests):
        halt.check()
        for event in engine.step():
            said += len(event.tokens)
        said = max(said, tokens * sum(engine.finished(request) for request in requests))
        told(said)
    return [engine.collect(request) for request in requests]


def split(corpus: Corpus, places: Sequence[Place], each: int) -> tuple[list[Place], list[Question]]:
    """What is learnt from, and up to `each` held-out prompts of every domain; SpecError unless there is some of both.

    Every sixteenth is held out by its number; of few conversations, the last ones too, up to a fifth of all.
    """
    out = [place for place in places if place.held_out]
    rest = [place for place in places if not place.held_out]
    more = min(each, max(1, len(places) // 5)) - len(out)
    out += rest[-more:] if more > 0 else []
    learnt = [place for place in places if place not in out]
    if not learnt:
        raise SpecError(
            f"{corpus.folder} holds {len(places)} conversations: one to learn from and one to measure with are needed; "
            "give more time, tokens or prompts"
        )
    found: dict[str, list[Question]] = defaultdict(list)
    for place in out:
        if len(found[place.domain]) < each:
            found[place.domain].append(Question(place.domain, place.prompt, place.system))
    return learnt, [question for _, asked in sorted(found.items()) for question in asked]


def as_lines(questions: Sequence[Question]) -> str:
    """Questions as a file of prompts."""
    return "".join(
        json.dumps({"id": f"held-out-{n}", "category": one.domain, "messages": one.messages()}, ensure_ascii=False)
        + "\n"
        for n, one in enumerate(questions, 1)
    )
