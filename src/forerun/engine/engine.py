"""Requests in, answers out: continuous batching around `decode_step`.

The engine is given its parts and knows none of them by name. It is synchronous and belongs to one thread: whoever wants
more (a server) puts a queue in front of it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from types import TracebackType
from typing import Any, NoReturn

from forerun.core.clock import NO_CLOCK, Clock
from forerun.core.errors import SpecError, unknown
from forerun.core.params import SamplingParams
from forerun.core.protocols import Controller
from forerun.core.seq import Seq
from forerun.core.text import Listener, Words
from forerun.engine.admission import Prompt, admit
from forerun.engine.results import Choice, Event, Result, Usage
from forerun.engine.scheduler import Round, Scheduler
from forerun.engine.step import Parts, decode_step

Messages = str | Sequence[Mapping[str, object]]


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
        if parts.drafter.taps:
            parts.target.tap(parts.drafter.taps)
        self.parts = parts
        self.controller = controller
        self.words = words
        self._eos_ids = eos_ids
        self._clock = clock
        self._scheduler = Scheduler(parts.target, parts.drafter, chunk, max_batch)
        self._ids = itertools.count()
        self._open: dict[int, list[Seq]] = {}
        self._voices: dict[Seq, _Voice] = {}
        self._news: dict[int, deque[Event]] = {}

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
        seqs = [self._seq(request, index, ids, params) for index in range(params.n)]
        self._open[request] = seqs
        self._scheduler.add(seqs)
        return request

    def _seq(self, request: int, index: int, ids: list[int], params: SamplingParams) -> Seq:
        ear = self.words.listen(params.stop, ids) if self.words else None
        max_len = self.parts.target.spec.max_len
        seq = Seq(request, ids, params, max_len, self._eos_ids, index, ear)
        seq.stats.added_s = perf_counter()
        self._voices[seq] = _Voice(ear)
        return seq

    def step(self) -> list[Event]:
        """One forward over everything that runs; returns what came of it.

        A request whose own hook or limits fail ends with the reason "error", which `collect` raises, and the others go
        on. After anything else that is raised here every request is as it was before the step, or a step further.
        """
        try:
            round = self._scheduler.round(self.controller.plan)
            if not round:
                return []
            self._run(round)
        except BaseException as error:
            seqs = tuple(self._scheduler.running)
            self._scheduler.rewind()
            for seq in seqs:
                seq.finish_reason = "error" if seq.error else seq.finish_reason
            events = self._tell(seqs)
            if not isinstance(error, Exception) or not any(seq.error for seq in seqs):
                raise
            return events
        return self._tell(round.seqs)

    def _run(self, round: Round) -> None:
        now = perf_counter()
        for seq in (*round.seqs, *(item.seq for item in round.chunks)):
            seq.stats.started_s = seq.stats.started_s or now
        trace = decode_step(round.seqs, round.plan, self.parts, round.chunks, clock=self._clock)
        if round.seqs:
            self.controller.observe(trace)

    def _tell(self, seqs: Iterable[Seq]) -> list[Event]:
        """The news of sequences that have grown or ended; those that ended give their memory back."""
        events = [self._event(seq) for seq in seqs if seq.finished or len(seq.output) > self._voices[seq].told]
        for event in events:
            if event.request_id in self._news:
                self._news[event.request_id].append(event)
        return events

    def _event(self, seq: Seq) -> Event:
        voice, now = self._voices[seq], perf_counter()
        tokens = seq.output[voice.told :]
        text = voice.ear.take() if voice.ear else ""
        if tokens and not seq.stats.first_s:
            seq.stats.first_s, seq.stats.first_tokens = now, len(tokens)
        if seq.finished:
            seq.stats.ended_s = now
            text += voice.ear.finish() if voice.ear else ""
            self._scheduler.remove(seq)
        voice.told = len(seq.output)
        voice.texts.append(text)
        return Event(seq.id, seq.index, text, tuple(tokens), seq.finish_reason)

    def cancel(self, request: int) -> Result:
        """Stop a request wherever it is and return what it has; its memory is free at once."""
        for seq in self._seqs(request):
            if not seq.finished:
                seq.finish_reason = "cancelled"
                self._tell([seq])
        return self._forget(request)

    def collect(self, request: int) -> Result:
        """The result of a finished request, which the engine then forgets; SpecError if it is not known or not done.

        Raises what the request's own hook raised, if that ended it.
        """
        seqs = self._seqs(request)
        if not all(seq.finished for seq in seqs):
            raise SpecError(f"request {request} is still running: step until it has finished, or cancel it")
        result = self._forget(request)
        for seq in seqs:
            if seq.error:
                raise seq.error
        return result

    def finished(self, request: int) -> bool:
        """Whether all answers of an open request have ended."""
        return all(seq.finished for seq in self._seqs(request))

    def _seqs(self, request: int) -> list[Seq]:
        if request not in self._open:
            raise SpecError(f"request {request} is not known: it was collected, cancelled or never added")
        return self._open[request]

    def _forget(self, request: int) -> Result:
        seqs = self._open.pop(request)
        choices = tuple(self._choice(seq) for seq in seqs)
        usage = Usage(seqs[0].prompt_len, sum(len(choice.tokens) for choice in choices))
        return Result(request, choices, usage)

    def _choice(self, seq: Seq) -> Choice:
        assert seq.finish_reason is not None
        text = "".join(self._voices.pop(seq).texts)
        return Choice(seq.index, text, tuple(seq.output), seq.finish_reason, seq.stats)

    def stream(self, prompt: Prompt, params: SamplingParams | None = None, **changes: object) -> Iterator[Event]:
        """Events of one request as they come; it starts with the first and is cancelled if the loop is left early.

        Raises as `add` does, before the first event is asked for.
        """
        params = with_changes(params or SamplingParams(), changes)
        ids, params = admit(prompt, params, self.parts, self.words)
        return self._events(ids, params)

    def _events(self, ids: list[int], params: SamplingParams) -> Iterator[Event]:
        request = self.add(ids, params)
        news = self._news[request] = deque()
        try:
            while news or (request in self._open and not self.finished(request)):
                if not news:
                    self.step()
                    continue
                if news[0].finish_reason == "error":
                    self._raise(request)
                yield news.popleft()
        finally:
            del self._news[request]
            if request in self._open:  # it may have been cancelled in between
                self.cancel(request)

    def _raise(self, request: int) -> NoReturn:
        """Raise what ended one of the request's answers."""
        raise next(seq.error for seq in self._seqs(request) if seq.error)

    def generate(self, prompt: Prompt, params: SamplingParams | None = None, **changes: object) -> Result:
        """Answer one prompt, a text or token ids; raises as `add` does."""
        return self.generate_batch([prompt], params, **changes)[0]

    def generate_batch(
        self, prompts: Sequence[Prompt], params: SamplingParams | None = None, **changes: object
    ) -> list[Result]:
        """Answer several prompts at once, in their order; one that is refused refuses them all."""
        if isinstance(prompts, str):
            raise SpecError("generate_batch takes a list of prompts, got one text: generate answers a single one")
        requests: list[int] = []
        try:
            requests.extend(self.add(prompt, params, **changes) for prompt in prompts)
            while not all(self.finished(request) for request in requests):
                for event in self.step():
                    if event.finish_reason == "error" and event.request_id in requests:
                        self._raise(event.request_id)
            return [self.collect(request) for request in requests]
        except BaseException:
            for request in requests:
                if request in self._open:
                    self.cancel(request)
            raise

    def close(self) -> None:
        """Cancel everything that is open."""
        for request in list(self._open):
            self.cancel(request)


@dataclass(slots=True)
class _Voice:
    """What was told of an answer: its decoder, its text so far and how many of its tokens."""

    ear: Listener | None
    texts: list[str] = field(default_factory=list)
    told: int = 0


def with_changes(params: SamplingParams, changes: Mapping[str, object]) -> SamplingParams:
    """`params` with fields replaced by name; SpecError with a suggestion for a name it does not have."""
    for name in changes:
        if name not in SamplingParams.__dataclass_fields__:
            raise unknown("sampling parameter", name, SamplingParams.__dataclass_fields__)
    values: Mapping[str, Any] = changes  # SamplingParams checks their types itself
    return replace(params, **values) if changes else params
