"""Many conversations at once: the engine's batch is kept full until enough is said.

Each conversation has a number, and its own randomness out of (seed, number): the same number gives the same one, in
whatever company and after whatever interruption.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass

import torch

from forerun.engine.engine import Engine
from forerun.engine.results import Choice
from forerun.train.conversation import Ask, Speech, Talk
from forerun.train.sample import Sample
from forerun.train.witness import Witness

Begin = Callable[[int, random.Random], Speech]
"""The conversation of that number."""
Next = Callable[[int], int | None]
"""The number of the next conversation, where so many run; None if none is to begin now."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a conversation."""

    number: int
    sample: Sample | None = None
    prompt: str = ""
    unasked: int = 0
    """Turns of the user's own that had no room any more."""
    steps: int = 0
    """Forwards from its beginning to its end."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the engine: who ended in it, how many run on, and how much of their answers is said."""

    ended: tuple[Ended, ...]
    running: int
    said: int


@dataclass(slots=True)
class _Running:
    number: int
    speech: Speech
    since: int
    kept: int | None = None
    """The latest request whose states are wanted."""


def converse(engine: Engine, witness: Witness, begin: Begin, seed: int, number: Next) -> Generator[Step, None, None]:
    """Hold conversations until none runs and none is to begin. Whoever closes it breaks off those that run.

    `engine` drafts with `witness`.
    """
    running: dict[int, _Running] = {}
    said: dict[int, int] = {}
    ended: list[Ended] = []
    steps = 0

    def start() -> bool:
        next_number = number(len(running))
        if next_number is None:
            return False
        one = _Running(next_number, begin(next_number, random.Random(f"{seed}:{next_number}")), steps)
        try:
            put(one, next(one.speech))
        except StopIteration as stop:
            end(one, stop.value)
        return True

    def put(one: _Running, ask: Ask, earlier: int | None = None) -> None:
        room = engine.parts.target.spec.max_len - len(ask.tokens)
        if room < 1:  # the conversation has filled the context
            hear(one, None, earlier)
            return
        request = engine.add(
            ask.tokens, temperature=ask.temperature, top_p=ask.top_p, seed=ask.seed, max_tokens=min(ask.most, room)
        )
        if earlier is not None:
            witness.follow(request, earlier)
        if ask.kept:
            if one.kept is not None:
                witness.drop(one.kept)
            one.kept, said[request] = request, 0
        running[request] = one

    def hear(one: _Running, choice: Choice | None, request: int | None) -> None:
        try:
            put(one, one.speech.send(choice), request)
        except StopIteration as stop:
            end(one, stop.value)
        if request is not None and one.kept != request:
            witness.drop(request)

    def end(one: _Running, talk: Talk | None) -> None:
        ended.append(_told(one, talk, witness, steps - one.since))

    while True:
        while start():
            pass
        if not running and not ended:
            return
        if running:
            steps += 1
            for event in engine.step():
                if event.request_id in said:
                    said[event.request_id] += len(event.tokens)
                if event.finish_reason:
                    said.pop(event.request_id, None)
                    one = running.pop(event.request_id)
                    hear(one, engine.collect(event.request_id).choices[0], event.request_id)
        yield Step(tuple(ended), len(running), sum(said.values()))
        ended.clear()


def _told(one: _Running, talk: Talk | None, witness: Witness, steps: int) -> Ended:
    states = witness.take(one.kept, talk.tokens if talk else ()) if one.kept is not None else None
    if talk is None or states is None:
        return Ended(one.number, steps=steps)
    tokens = torch.tensor(talk.tokens, dtype=torch.int32)
    answered = torch.zeros(len(tokens), dtype=torch.bool)
    for start, stop in talk.spans:
        answered[start:stop] = True
    keep = min(before_looping(talk.tokens, talk.spans[-1][0]), len(states) + 1)
    sample = Sample(
        one.number, talk.domain, talk.greedy, tokens[:keep], answered[:keep], states[: keep - 1], talk.system
    )
    return Ended(one.number, sample, talk.prompt, talk.unasked, steps)


def before_looping(tokens: list[int], start: int, run: int = 24) -> int:
    """How much to keep of a text that repeats itself: up to the third time that `run` tokens after `start` come."""
    seen: dict[tuple[int, ...], int] = {}
    for at in range(start, len(tokens) - run + 1):
        words = tuple(tokens[at : at + run])
        seen[words] = seen.get(words, 0) + 1
        if seen[words] == 3:
            return at + run
    return len(tokens)
