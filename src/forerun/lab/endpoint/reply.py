"""One streamed answer: when its events came, and what the server counted."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from forerun.lab.endpoint import sse
from forerun.lab.endpoint.chunk import Chunk, Drafted, Usage, read
from forerun.lab.endpoint.faults import Fault
from forerun.lab.looping import Repeats, repeats

_WORD = re.compile(r"\w+|[^\w\s]")
TOGETHER_S = 0.001  # events that are nearer to one another came with one step of the server

Event = tuple[float, int | None]
"""Seconds after the request was sent, and tokens that came with it (None where the server does not say)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a request gave. Times are the client's, tokens the server's; where it counts none, there are none."""

    events: tuple[Event, ...]
    latency_s: float
    """Until the last event of the stream."""
    usage: Usage | None
    finish: str
    drafted: Drafted | None
    hidden: int
    """Reasoning tokens that were made but not sent."""
    digest: str
    """Of the text."""
    retokenised: int | None = None
    """Tokens of the text by a tokenizer of ours: a cross-check, never the count."""
    repeats: Repeats = (0, 0)
    """How far the text repeats itself, by its words."""

    @property
    def counted(self) -> bool:
        """Whether every event came with its number of tokens."""
        return bool(self.events) and all(tokens is not None for _, tokens in self.events)

    @property
    def tokens(self) -> int | None:
        """Tokens of the answer by the server's count."""
        if self.usage is not None:
            return self.usage.written
        return sum(tokens or 0 for _, tokens in self.events) if self.counted else None

    @property
    def first_s(self) -> float | None:
        """Until the first event that holds something."""
        return self.events[0][0] if self.events else None

    @property
    def decode_s(self) -> float:
        """From the first event to the last."""
        return self.events[-1][0] - self.events[0][0] if self.events else 0.0

    @property
    def after_first(self) -> float | None:
        """Tokens that came within `decode_s`.

        Where only their sum is known, the first event is taken to hold as many as the average one.
        """
        if self.counted:
            return float(sum(tokens or 0 for _, tokens in self.events[1:]))
        if self.tokens is None or not self.events:
            return None
        return max(0, self.tokens - self.hidden) * (len(self.events) - 1) / len(self.events)

    @property
    def ms_per_token(self) -> float | None:
        """Milliseconds between tokens; None without a count, or where one event held them all."""
        tokens = self.after_first
        return 1e3 * self.decode_s / tokens if tokens and self.decode_s > 0 else None

    @property
    def bursts(self) -> list[tuple[float, int]]:
        """Events that came together: seconds, and their tokens (or how many events, where tokens are not counted).

        Some servers send the tokens of one step as events of their own, tens of microseconds apart.
        """
        found: list[tuple[float, int]] = []
        for time, tokens in self.events:
            held = tokens if self.counted and tokens is not None else 1
            if found and time - found[-1][0] < TOGETHER_S:
                found[-1] = (found[-1][0], found[-1][1] + held)
            else:
                found.append((time, held))
        return found

    @property
    def gaps(self) -> list[tuple[float, float]]:
        """Milliseconds between neighbouring bursts, each with the weight of the tokens that waited for it."""
        return [(1e3 * (time - before), float(tokens)) for (before, _), (time, tokens) in pairwise(self.bursts)]

    def arrivals(self) -> list[tuple[float, float]]:
        """Seconds and tokens of every event; the average where only the sum is known; [] where not even that."""
        if self.counted:
            return [(time, float(tokens or 0)) for time, tokens in self.events]
        if self.tokens is None or not self.events:
            return []
        return [(time, self.tokens / len(self.events)) for time, _ in self.events]

    def to_json(self) -> dict[str, Any]:
        """As JSON values; seconds to a hundredth of a millisecond."""
        events = [[round(time, 5), tokens] for time, tokens in self.events]
        return {**asdict(self), "events": events, "latency_s": round(self.latency_s, 5)}


class Listener:
    """Makes a reply of events as they come."""

    def __init__(self) -> None:
        self.begun = False
        """Whether the server has answered at all."""
        self.done = False
        self.finished = False
        """Whether the answer has said that it is over; counts may still come."""
        self._chunks: list[tuple[float, Chunk]] = []
        self._end = 0.0

    def take(self, event: sse.Event, now: float) -> None:
        """One event, `now` seconds after the request; Fault if it is no chunk. What only keeps the connection alive is
        no part of the answer, and of its time."""
        if self.done:
            return
        if event.data.strip() == "[DONE]":
            self.done, self._end = True, now
        elif chunk := read(event):
            self._chunks.append((now, chunk))
            self.finished = self.finished or bool(chunk.finish)
            self._end = now

    @property
    def heard(self) -> int:
        """Events so far."""
        return len(self._chunks)

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(chunk.text for _, chunk in self._chunks)

    def reply(self) -> Reply:
        """The whole answer; Fault if the stream ended before the answer did."""
        finish = next((chunk.finish for _, chunk in self._chunks if chunk.finish), "")
        events = self._events()
        if not self._chunks:
            raise Fault("not a stream", "the stream held no event: is this the address of an OpenAI-compatible server?")
        if not self.done and not finish:
            raise Fault("cut off", f"the stream stopped after {len(events)} events, without finish_reason or [DONE]")
        usage = next((chunk.usage for _, chunk in reversed(self._chunks) if chunk.usage), None)
        if usage is not None and usage.written < usage.completion:  # running counts hold what was never sent
            events = tuple((time, None) for time, _ in events)
        sent = any(chunk.reasoned for _, chunk in self._chunks)
        return Reply(
            events=events,
            latency_s=self._end,
            usage=usage,
            finish=finish,
            drafted=next((chunk.drafted for _, chunk in reversed(self._chunks) if chunk.drafted), None),
            hidden=usage.reasoning if usage and not sent else 0,
            repeats=repeats(_WORD.findall(self.text)),
            digest=hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        )

    def _events(self) -> tuple[Event, ...]:
        """With counts if every chunk that brought something had one: a count in the last alone is that of all."""
        made = [(time, chunk) for time, chunk in self._chunks if chunk.produced]
        if not made or any(chunk.so_far is None for _, chunk in made):
            return tuple((time, None) for time, _ in made)
        events: list[Event] = []
        before = 0
        for time, chunk in self._chunks:
            grown = max(0, (before if chunk.so_far is None else chunk.so_far) - before)
            before += grown
            if chunk.produced or grown:
                events.append((time, grown))
        return tuple(events)
