"""The ways of answering that are compared: engines over one target, and the target in a bare loop.

An arm answers a batch of prompts and says what was counted. Time is split at the moment when every answer has its first
token. Before it prompts are read: by the target, as in every arm, and by a drafter that runs a model, in its first
draft. The time after it has nothing of either; only both together are what an answer takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter, process_time
from typing import Any, Protocol

from forerun.assemble import Foundation
from forerun.core.draft import Tree
from forerun.core.errors import CapacityError, SpecError
from forerun.core.params import SamplingParams
from forerun.core.plan import Load, Plan
from forerun.core.protocols import Controller, Remembers, StepTrace
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.engine.engine import Engine
from forerun.lab.looping import repeats
from forerun.lab.sample import Sample, digest, summed

Prompts = Sequence[Sequence[int]]
Listener = Callable[[StepTrace], None]
_CHUNK = 512


class Arm(Protocol):
    """One way of answering."""

    name: str

    def answer(self, prompts: Prompts, params: Mapping[str, Any], listener: Listener | None = None) -> Sample:
        """Answer all of `prompts` (token ids) at once; `params` are fields of SamplingParams. `listener` hears every
        step of an engine, which then asks its drafter for signals and is slower."""
        ...


@dataclass(slots=True)
class EngineArm:
    """An engine, with the plan of its own controller."""

    name: str
    engine: Engine

    def answer(self, prompts: Prompts, params: Mapping[str, Any], listener: Listener | None = None) -> Sample:
        """See `Arm`; a drafter that remembers answers forgets them first, or it would know another arm's by heart."""
        engine, drafter = self.engine, self.engine.parts.drafter
        if isinstance(drafter, Remembers):
            drafter.forget()
        watch = Watch(engine.controller, listener)
        engine.controller = watch
        try:
            return _timed(engine, watch, prompts, params)
        finally:
            engine.controller = watch.inner
            engine.close()


def _timed(engine: Engine, watch: Watch, prompts: Prompts, params: Mapping[str, Any]) -> Sample:
    begin = perf_counter()
    seed = params.get("seed")  # moved on by the prompt's place, or equal prompts of a batch would draw alike
    own = [{} if seed is None else {"seed": seed + i} for i in range(len(prompts))]
    requests = [engine.add(list(ids), **{"n": 1, **params, **mine}) for ids, mine in zip(prompts, own, strict=True)]
    silent, before = set(requests), 0
    while silent:
        for event in engine.step():
            silent.discard(event.request_id)
            before += len(event.tokens)
    watch.mark()
    first, cpu = perf_counter(), process_time()
    while not all(map(engine.finished, requests)):
        engine.step()
    end, cpu = perf_counter(), process_time() - cpu
    results = [engine.collect(request) for request in requests]
    stats = [result.stats for result in results]
    seconds = dict(watch.seconds)
    return Sample(
        answers=len(prompts),
        tokens=sum(s.emitted for s in stats) - before,
        decode_s=end - first,
        first_s=first - begin,
        cpu_s=cpu,
        steps=watch.steps,
        rows=watch.rows,
        phases={**seconds, "rest": end - first - sum(seconds.values())},
        emitted=sum(s.emitted for s in stats),
        passes=sum(s.target_passes for s in stats),
        drafted=sum(s.drafted for s in stats),
        accepted=sum(s.accepted for s in stats),
        tried_at=summed(watch.tried),
        stood_at=summed([[1] * len(path) + [0] * (len(tried) - len(path)) for path, tried in watch.paths]),
        digest=digest([result.token_ids for result in results]),
        texts=tuple(result.text for result in results),
        ids=tuple(tuple(result.token_ids) for result in results),
        repeats=tuple(repeats(result.token_ids) for result in results),
    )


@dataclass(slots=True)
class Watch:
    """A controller that does as `inner` says and counts steps, from the last `mark` on."""

    inner: Controller
    listener: Listener | None = None
    steps: int = 0
    rows: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    tried: list[list[int]] = field(default_factory=list)
    paths: list[tuple[tuple[int, ...], list[int]]] = field(default_factory=list)
    """Of each tree that guessed anything, since the beginning: its path, and the depths that were judged."""

    def plan(self, load: Load) -> Plan:
        """The inner controller's plan, with signals if somebody listens."""
        plan = self.inner.plan(load)
        return replace(plan, signals=True) if self.listener else plan

    def observe(self, step: StepTrace) -> None:
        """Count it and pass it on."""
        self.inner.observe(step)
        self.steps += 1
        self.rows += sum(step.sizes)
        for phase, value in step.seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + value
        for tree, path in zip(step.draft.trees, step.verdict.paths, strict=True):
            if len(tree) > 1:
                depths = [1] * judged(tree, path)
                self.tried.append(depths)
                self.paths.append((path, depths))
        if self.listener:
            self.listener(step)

    def mark(self) -> None:
        """Count steps, rows and seconds from here."""
        self.steps, self.rows, self.seconds = 0, 0, {}


def judged(tree: Tree, path: Sequence[int]) -> int:
    """To which depth guesses of a tree were judged: the path, and one more if there was a guess where it ended."""
    last = path[-1] if path else 0
    return len(path) + (last in tree.parents[last + 1 :])


@dataclass(slots=True)
class BareArm:
    """The target alone: forward, argmax, commit. What an engine with no drafts costs above it is the engine's own."""

    base: Foundation
    name: str = "bare"

    def answer(self, prompts: Prompts, params: Mapping[str, Any], listener: Listener | None = None) -> Sample:
        """See `Arm`; greedy only, and one prompt, for this is a baseline and no second engine."""
        wanted = SamplingParams(**params)
        if len(prompts) != 1 or not wanted.greedy or wanted.max_tokens is None:
            raise SpecError("the bare loop answers one prompt greedily, with max_tokens: take `plain` for the rest")
        target, stops = self.base.target, self.base.eos_ids if not wanted.ignore_eos else frozenset()
        seq = Seq(0, prompts[0], wanted, target.spec.max_len)
        limit = min(wanted.max_tokens, seq.max_len - len(seq))
        begin = perf_counter()
        target.begin(seq)
        try:
            _read(self.base, seq)
            said = [self._next(seq)]
            first, cpu = perf_counter(), process_time()
            while len(said) < limit and said[-1] not in stops:
                said.append(self._next(seq))
            end, cpu = perf_counter(), process_time() - cpu
        finally:
            target.release(seq)
        n = len(said)
        return Sample(
            answers=1,
            tokens=n - 1,
            decode_s=end - first,
            first_s=first - begin,
            cpu_s=cpu,
            steps=n - 1,
            rows=n - 1,
            phases={"score": end - first},
            emitted=n,
            passes=n,
            drafted=0,
            accepted=0,
            tried_at=(),
            stood_at=(),
            digest=digest([said]),
            texts=(self.base.words.decode(said) if self.base.words else "",),
            ids=(tuple(said),),
            repeats=(repeats(said),),
        )

    def _next(self, seq: Seq) -> int:
        """One token more."""
        target = self.base.target
        held = len(seq) - 1
        if not target.reserve(seq, 1):
            raise CapacityError(f"no memory left for {seq}: give kv_tokens more")
        token = target.score([Item(seq, held, held, Tree.root(seq.last))]).argmax(0, 0)
        target.commit([seq], [()])
        seq.tokens.append(token)
        return token


def _read(base: Foundation, seq: Seq) -> None:
    """Hold all of a prompt but its last token."""
    if not base.target.reserve(seq, len(seq)):
        raise CapacityError(f"no memory for a prompt of {len(seq)} tokens: give kv_tokens more")
    while (held := base.target.held(seq)) < len(seq) - 1:
        base.target.score([Item(seq, held, min(held + _CHUNK, len(seq) - 1))])
