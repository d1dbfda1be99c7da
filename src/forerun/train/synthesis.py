"""Many conversations at once: the engine's batch is kept full until enough is said.

Each conversation has a number, and its own randomness out of (seed, number): the same number gives the same one, in
whatever company and after whatever interruption.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from forerun.engine.engine import Engine
from forerun.engine.results import Choice
from forerun.train.conversation import Ask, Speech, Talk
from forerun.train.sample import Sample
from forerun.train.witness import Witness

Begin = Callable[[int, random.Random], Speech | None]
"""The conversation of that number; None where there is none (prompts of the user's own are finite)."""


@dataclass(slots=True)
class _Running:
    number: int
    speech: Speech
    kept: int | None = None
    """The latest request whose states are wanted."""


def converse(
    engine: Engine, witness: Witness, begin: Begin, seed: int, numbers: Iterator[int], width: int
) -> Iterator[tuple[int, Sample | None, str]]:
    """(number, what came of it, what was asked) of each conversation, as they end; `width` of them run at a time.

    `engine` drafts with `witness`. Numbers are taken as there is room: whoever has enough ends `numbers`.
    """
    running: dict[int, _Running] = {}

    def start() -> bool:
        while (number := next(numbers, None)) is not None:
            speech = begin(number, random.Random(f"{seed}:{number}"))
            if speech is None:
                return False
            try:
                ask = next(speech)
            except StopIteration:
                ended.append((number, None, ""))
                continue
            put(_Running(number, speech), ask)
            return True
        return False

    def put(one: _Running, ask: Ask, earlier: int | None = None) -> None:
        room = engine.parts.target.spec.max_len - len(ask.tokens)
        if room < 1:  # the conversation has filled the context
            one.speech.close()
            if one.kept is not None:
                witness.drop(one.kept)
            ended.append((one.number, None, ""))
            return
        request = engine.add(
            ask.tokens, temperature=ask.temperature, top_p=ask.top_p, seed=ask.seed, max_tokens=min(ask.most, room)
        )
        if earlier is not None:
            witness.follow(request, earlier)
        if ask.kept:
            if one.kept is not None:
                witness.drop(one.kept)
            one.kept = request
        running[request] = one

    def hear(one: _Running, choice: Choice, request: int) -> None:
        try:
            put(one, one.speech.send(choice), request)
        except StopIteration as stop:
            ended.append(_told(one, stop.value, witness))
        if one.kept != request:
            witness.drop(request)

    ended: list[tuple[int, Sample | None, str]] = []
    while len(running) < width and start():
        pass
    while running or ended:
        yield from ended
        ended.clear()
        if not running:
            break
        for request in {event.request_id for event in engine.step() if event.finish_reason}:
            hear(running.pop(request), engine.collect(request).choices[0], request)
        while len(running) < width and start():
            pass


def _told(one: _Running, talk: Talk | None, witness: Witness) -> tuple[int, Sample | None, str]:
    states = witness.take(one.kept, talk.tokens if talk else ()) if one.kept is not None else None
    if talk is None or states is None:
        return one.number, None, ""
    tokens = torch.tensor(talk.tokens, dtype=torch.int32)
    answered = torch.zeros(len(tokens), dtype=torch.bool)
    for start, stop in talk.spans:
        answered[start:stop] = True
    keep = min(before_looping(talk.tokens, talk.spans[-1][0]), len(states) + 1)
    return (
        one.number,
        Sample(one.number, talk.domain, talk.greedy, tokens[:keep], answered[:keep], states[: keep - 1]),
        talk.prompt,
    )


def before_looping(tokens: list[int], start: int, run: int = 24) -> int:
    """How much to keep of a text that repeats itself: up to the third time that `run` tokens after `start` come."""
    seen: dict[tuple[int, ...], int] = {}
    for at in range(start, len(tokens) - run + 1):
        words = tuple(tokens[at : at + run])
        seen[words] = seen.get(words, 0) + 1
        if seen[words] == 3:
            return at + run
    return len(tokens)
