"""Requests in, answers out: continuous batching around `decode_step`.

The engine is given its parts and knows none of them by name. It is synchronous and belongs to one thread: whoever wants
more (a server) puts a queue in front of it.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from time import perf_counter
from types import TracebackType
from typing import Any
from weakref import WeakValueDictionary

from forerun.core.clock import NO_CLOCK, Clock
from forerun.core.errors import SpecError, unknown
from forerun.core.params import SamplingParams
from forerun.core.protocols import Controller
from forerun.core.seq import Seq
from forerun.core.text import Listener, Words
from forerun.engine.admission import Prompt, admit
from forerun.engine.answer import NOTHING, Answer
from forerun.engine.guard import Guard, Judge
from forerun.engine.results import Event, Result, Usage
from forerun.engine.scheduler import Round, Scheduler
from forerun.engine.step import Parts, decode_step

Messages = str | Sequence[Mapping[str, object]]
_CLAIMS: WeakValueDictionary[int, Engine] = WeakValueDictionary()
"""By the target: the engine that answered with it last."""
_CLAIMING = Lock()


class Engine:
    """Serves requests with speculation. `forerun.load` makes one from names; this takes ready parts.

    `eos_ids` end an answer; `words` is the tokenizer, without which prompts are token ids and answers have no text.
    `chunk` bounds the prompt tokens read in a step, `max_batch` the sequences that run at once.
    """

    def __init__(
        self,
        parts: Parts,
        controller: Controller,
        *,
        words: Words | None = None,
        eos_ids: frozenset[int] = frozenset(),
        chunk: int = 512,
        max_batch: int = 64,
        clock: Clock = NO_CLOCK,
    ) -> None:
        self._guard = Guard(parts.drafter)
        self.parts = parts
        self.controller = controller
        self.words = words
        self._eos_ids = eos_ids
        self._clock = clock
        self._scheduler = Scheduler(parts.target, self._guard, chunk, max_batch)
        self._ids = itertools.count()
        self._open: dict[int, list[Answer]] = {}
        self._news: tuple[Event, ...] = ()
        self._behind = False
        """Whether the last step was broken off, and its news are still to be told."""
        self._warned = False
        self._claim()

    @property
    def parts(self) -> Parts:
        """What the engine is made of; a step runs them behind their guards."""
        return self._parts

    @parts.setter
    def parts(self, parts: Parts) -> None:
        parts.target.spec.check_taps(parts.drafter.taps)
        self._parts = parts
        self._guard.take(parts.drafter)
        self._guarded = replace(parts, drafter=self._guard, verify=Judge(parts.verify))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        parts = self.parts
        return f"<Engine {parts.target.spec.name}, {parts.drafter.name}, {parts.verify.name}>"

    @property
    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self._open)

    @property
    def has_template(self) -> bool:
        """Whether conversations can be told to the model in its own way."""
        return self.words is not None and self.words.has_template

    def chat(self, messages: Messages, **options: Any) -> list[int]:
        """Token ids of a conversation (or of one user's text) through the model's chat template, up to the assistant's
        answer; if the last message is the assistant's, the answer goes on from its end.

        Options: `tools`, `documents`, `chat_template_kwargs` (or its names one by one: `enable_thinking=False`),
        `continue_final_message`, `add_generation_prompt`, and `parse_special`: names of control tokens in messages are
        those tokens, and not text.
        """
        if self.words is None:
            raise SpecError("this engine has no tokenizer, so it has no chat template either: give it token ids")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.words.chat(messages, **options)

    def encode(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Token ids of a raw prompt, as `add` makes them; names of control tokens are text without `parse_special`."""
        if self.words is None:
            raise SpecError("this engine has no tokenizer: give it token ids")
        return self.words.encode(text, bos=True, parse_special=parse_special)

    def add(self, prompt: Prompt, params: SamplingParams | None = None, **changes: object) -> int:
        """Queue a request and return its id; it runs as `step` is called.

        `prompt` is a text or token ids; `changes` are fields of SamplingParams by name. Raises SpecError or
        CapacityError before anything runs.
        """
        params = with_changes(params or SamplingParams(), changes)
        ids, params = admit(prompt, params, self.parts, self.words)
        request = next(self._ids)
        answers = [self._answer(request, index, ids, params) for index in range(params.n)]
        if not self._scheduler.busy:
            self._claim()
        try:
            self._open[request] = answers
            self._scheduler.add(answer.seq for answer in answers)
            return request
        except BaseException:
            self._open.pop(request, None)
            self._begin_anew()
            raise

    def _claim(self) -> None:
        """SpecError while another engine answers with the target."""
        target = self.parts.target
        with _CLAIMING:
            other = _CLAIMS.get(id(target), self)
            if other is not self and other._scheduler.busy:
                raise SpecError(
                    f"{target.spec.name} is answering requests of another engine ({other.parts.drafter.name}): engines "
                    "over one memory take turns; finish or close that one first, or give this one memory of its own "
                    "(Foundation.apart)"
                )
            _CLAIMS[id(target)] = self

    def _answer(self, request: int, index: int, ids: list[int], params: SamplingParams) -> Answer:
        ear = self._ear(params, ids)
        seq = Seq(request, ids, params, self.parts.target.spec.max_len, self._eos_ids, index, ear)
        seq.stats.added_s = perf_counter()
        return Answer(seq, ear)

    def _ear(self, params: SamplingParams, prompt: Sequence[int]) -> Listener | None:
        return self.words.listen(params.stop, prompt) if self.words else None

    def step(self) -> list[Event]:
        """One forward over everything that runs; returns what came of it.

        A request whose own hook or limits fail ends with the reason "error", which `collect` raises, and the others go
        on. After anything else that is raised here, be it an interruption between two lines, every request is as it was
        before the step or a step further, and what was not told comes with the next step.
        """
        self._news = self._news if self._behind else ()
        try:
            self._go_on()
            self._behind = False
            return list(self._news)
        except BaseException:
            self._behind = True
            self._begin_anew()
            raise

    def _go_on(self) -> None:
        """Run one step and note its news."""
        everybody = self._behind
        try:
            if round := self._scheduler.round(self.controller.plan):
                self._run(round)
        except Exception:
            if not any(seq.error for seq in self._scheduler.running):
                raise
            self._begin_anew()
            everybody = True
        for answer in self._answers() if everybody else self._running():
            if event := self._event(answer):
                self._news, answer.told = (*self._news, event), answer.whole
        self._warn()

    def _run(self, round: Round) -> None:
        now = perf_counter()
        for seq in (*round.seqs, *(item.seq for item in round.chunks)):
            seq.stats.started_s = seq.stats.started_s or now
        trace = decode_step(round.seqs, round.plan, self._guarded, round.chunks, clock=self._clock)
        if round.seqs:
            self.controller.observe(trace)
            self._guard.fault = self._guard.fault or next(filter(None, trace.dropped), "")

    def _warn(self) -> None:
        """Say once that guesses are dropped."""
        if self._guard.fault and not self._warned:
            self._warned = True
            warnings.warn(
                f"the drafter {self._guard.name!r} is at fault: {self._guard.fault}; such guesses are dropped and "
                "counted, and the text goes on without them (said once)",
                RuntimeWarning,
                stacklevel=4,
            )

    def _begin_anew(self) -> None:
        """After something was broken off, at whatever line: nothing is held, and what is unfinished waits in order."""
        answers = self._answers()
        for answer in answers:
            if not answer.told.ended:
                seq = answer.seq
                answer.replay(self._ear(seq.params, seq.tokens[: seq.prompt_len]))
        self._scheduler.restart([answer.seq for answer in answers])

    def _answers(self) -> list[Answer]:
        return [answer for answers in self._open.values() for answer in answers]

    def _running(self) -> list[Answer]:
        return [self._open[seq.id][seq.index] for seq in self._scheduler.running]

    def _event(self, answer: Answer) -> Event | None:
        """What is new of an answer; one that has ended gives its memory back."""
        seq, stats = answer.seq, answer.seq.stats
        answer.listen()
        event = answer.news(answer.told)
        if event and event.tokens and not stats.first_s:
            stats.first_s, stats.first_tokens = perf_counter(), len(event.tokens)
        if seq.finished:
            stats.ended_s = stats.ended_s or perf_counter()
            self._scheduler.remove(seq)
        return event

    def cancel(self, request: int) -> Result:
        """Stop a request wherever it is and return what it has; its memory is free at once."""
        answers = self._of(request)
        try:
            for answer in answers:
                answer.seq.finish_reason = answer.seq.finish_reason or "cancelled"
                self._event(answer)
            return self._forget(request)
        except BaseException:
            self._begin_anew()
            raise

    def collect(self, request: int) -> Result:
        """The result of a finished request, which the engine then forgets; SpecError if it is not known or not done.

        Raises what the request's own hook raised, if that ended it.
        """
        if not self.finished(request):
            raise SpecError(f"request {request} is still running: step until it has finished, or cancel it")
        for answer in self._of(request):
            if answer.seq.error:
                self._forget(request)
                raise answer.seq.error
        return self._forget(request)

    def finished(self, request: int) -> bool:
        """Whether all answers of an open request have ended."""
        return all(answer.seq.finished for answer in self._of(request))

    def _of(self, request: int) -> list[Answer]:
        if request not in self._open:
            raise SpecError(f"request {request} is not known: it was collected, cancelled or never added")
        return self._open[request]

    def _forget(self, request: int) -> Result:
        answers = self._open[request]
        choices = tuple(answer.choice() for answer in answers)
        usage = Usage(answers[0].seq.prompt_len, sum(len(choice.tokens) for choice in choices))
        result = Result(request, choices, usage)
        return (result, self._open.pop(request))[0]  # in one line: an interruption loses no result

    def stream(self, prompt: Prompt, params: SamplingParams | None = None, **changes: object) -> Iterator[Event]:
        """Events of one request as they come; it starts with the first and is cancelled if the loop is left early.

        Raises as `add` does, before the first event is asked for.
        """
        params = with_changes(params or SamplingParams(), changes)
        ids, params = admit(prompt, params, self.parts, self.words)
        return self._events(ids, params)

    def _events(self, ids: list[int], params: SamplingParams) -> Iterator[Event]:
        request = self.add(ids, params)
        answers = self._open[request]
        told = [NOTHING] * len(answers)
        try:
            while not all(each.ended for each in told):
                quiet = True
                for i, answer in enumerate(answers):
                    if event := answer.news(told[i]):
                        if answer.seq.error:
                            raise answer.seq.error
                        told[i], quiet = answer.whole, False
                        yield event
                if quiet:
                    self.step()
        finally:
            if request in self._open:  # it may have been cancelled in between
                self.cancel(request)

    def generate(self, prompt: Prompt, params: SamplingParams | None = None, **changes: object) -> Result:
        """Answer one prompt, a text or token ids; raises as `add` does."""
        return self.generate_batch([prompt], params, **changes)[0]

    def generate_batch(
        self, prompts: Sequence[Prompt], params: SamplingParams | None = None, **changes: object
    ) -> list[Result]:
        """Answer several prompts at once, in their order; one that is refused refuses them all."""
        if isinstance(prompts, str):
            raise SpecError("generate_batch takes a list of prompts, got one text: generate answers a single one")
        before = set(self._open)
        try:
            requests = [self.add(prompt, params, **changes) for prompt in prompts]
            while not all(self.finished(request) for request in requests):
                for event in self.step():
                    if event.finish_reason == "error" and event.request_id in requests:
                        raise next(answer.seq.error for answer in self._of(event.request_id) if answer.seq.error)
            return [self.collect(request) for request in requests]
        except BaseException:
            for request in self._open.keys() - before:
                self.cancel(request)
            raise

    def close(self) -> None:
        """Cancel everything that is open."""
        for request in list(self._open):
            self.cancel(request)


def with_changes(params: SamplingParams, changes: Mapping[str, object]) -> SamplingParams:
    """`params` with fields replaced by name; SpecError with a suggestion for a name it does not have."""
    for name in changes:
        if name not in SamplingParams.__dataclass_fields__:
            raise unknown("sampling parameter", name, SamplingParams.__dataclass_fields__)
    values: Mapping[str, Any] = changes  # SamplingParams checks their types itself
    return replace(params, **values) if changes else params
