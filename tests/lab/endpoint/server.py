"""A small server for tests: what it answers, byte by byte and when, is written down by the test."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any


@dataclass(frozen=True)
class Answer:
    """Pieces are written one by one, each after its pause; `cut` closes the connection before the body's end."""

    pieces: tuple[tuple[float, bytes], ...] = ()
    status: int = 200
    kind: str = "text/event-stream"
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False
    mute: bool = False
    """Closes the connection without a word."""


def page(text: str, status: int = 200, kind: str = "application/json", **headers: str) -> Answer:
    """A whole answer at once."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Answer(((0.0, text.encode()),), status, kind, named)


@dataclass(frozen=True)
class Script:
    """How a model writes: `tokens` in events of `per_event`, the first after `first_s`, the others `gap_s` apart."""

    tokens: int = 8
    per_event: int = 1
    first_s: float = 0.0
    gap_s: float = 0.0
    usage: str = "final"  # final, continuous or none
    text: str = "ab "
    details: dict[str, int] = field(default_factory=dict)
    """Of completion_tokens_details."""
    cached: int = 0
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of the last chunk."""
    chat: bool = True
    done: bool = True
    finish: str = "length"
    stop_after: int | None = None
    """Events after which the connection is closed."""

    def answer(self) -> Answer:
        """Its bytes."""
        pieces = [(0.0, event({"choices": [{"index": 0, "delta": {"role": "assistant"}}], **self._running(0)}))]
        left, count = self.tokens, 0
        while left:
            now = min(left, self.per_event)
            left -= now
            pause = self.gap_s if count else self.first_s
            count += 1
            pieces.append((pause, event({"choices": [self._choice(now)], **self._running(self.tokens - left)})))
            if count == self.stop_after:
                return Answer(tuple(pieces), cut=True)
        pieces.append((0.0, event({"choices": [{"index": 0, "delta": {}, "text": "", "finish_reason": self.finish}]})))
        if self.usage != "none":
            pieces.append((0.0, event({"choices": [], "usage": self._usage(self.tokens, True), **self.extra})))
        elif self.extra:
            pieces.append((0.0, event({"choices": [], **self.extra})))
        return Answer((*pieces, (0.0, b"data: [DONE]\n\n")) if self.done else tuple(pieces))

    def _choice(self, tokens: int) -> dict[str, Any]:
        text = self.text * tokens
        return {"index": 0, "delta": {"content": text}} if self.chat else {"index": 0, "text": text}

    def _running(self, tokens: int) -> dict[str, Any]:
        return {"usage": self._usage(tokens, False)} if self.usage == "continuous" else {}

    def _usage(self, tokens: int, last: bool) -> dict[str, Any]:
        details = {"completion_tokens_details": self.details} if last and self.details else {}
        cached = {"prompt_tokens_details": {"cached_tokens": self.cached}} if self.cached else {}
        return {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens, **details, **cached}


def event(value: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return f"data: {json.dumps(value)}\n\n".encode()


@dataclass(frozen=True)
class Asked:
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    number: int
    """Of the POST requests, from 0 on."""

    @property
    def prompt(self) -> str:
        """The last thing that the user said."""
        return str(self.body["prompt"] if "prompt" in self.body else self.body["messages"][-1]["content"])


Say = Callable[[Asked], Answer]


class LabServer:
    """Listens on a free port in a thread of its own while the `with` block runs.

    `say` answers every POST; `metrics` gives the page of that name (None: 404). What came is in `asked`.
    Answers begin when `together` requests wait for one.
    """

    def __init__(
        self,
        say: Say | Script | None = None,
        metrics: Callable[["LabServer"], str | None] = lambda server: None,
        models: Iterable[dict[str, Any]] = ({"id": "A", "owned_by": "tests"},),
        together: int = 1,
    ) -> None:
        script = Script() if say is None else say
        self.say: Say = (lambda asked: script.answer()) if isinstance(script, Script) else script
        self.metrics = metrics
        self.models = list(models)
        self._together = together
        self._waiting: list[asyncio.Event] = []
        self.asked: list[Asked] = []
        self.running = 0
        self.most = 0
        """Requests that ran at once, at most."""
        self.gone = 0
        """Requests whose client went away."""
        self.started = perf_counter()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    def __enter__(self) -> "LabServer":
        self._thread.start()
        assert self._ready.wait(5)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(5)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def counted(self) -> list[Asked]:
        """Requests of more than one token, but for the first of each model."""
        seen: set[str] = set()
        found = []
        for asked in self.asked:
            if asked.body.get("max_tokens") == 1 or asked.body["model"] not in seen:
                seen.add(asked.body["model"])
            else:
                found.append(asked)
        return found

    async def _main(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._one(reader, writer):
                    pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        if method == "GET":
            return await self._write(writer, self._get(path))
        asked = Asked(path, headers, json.loads(data), len(self.asked))
        self.asked.append(asked)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self._gathered()
            return await self._write(writer, self.say(asked))
        except ConnectionError:
            self.gone += 1
            raise
        finally:
            self.running -= 1

    async def _gathered(self) -> None:
        begin = asyncio.Event()
        self._waiting.append(begin)
        if len(self._waiting) >= self._together:
            for one in self._waiting:
                one.set()
            self._waiting.clear()
        await begin.wait()

    def _get(self, path: str) -> Answer:
        if path == "/v1/models":
            return page(json.dumps({"object": "list", "data": self.models}), server="lab-server/1")
        text = self.metrics(self) if path == "/metrics" else None
        return page("not found", 404, "text/plain") if text is None else page(text, kind="text/plain")

    async def _write(self, writer: asyncio.StreamWriter, answer: Answer) -> bool:
        if answer.mute:
            return False
        lines = [f"HTTP/1.1 {answer.status} X", f"content-type: {answer.kind}", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for pause, data in answer.pieces:
            if pause:
                await writer.drain()
                await asyncio.sleep(pause)
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
        if answer.cut:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def split(answer: Answer, size: int) -> Answer:
    """The same bytes in pieces of `size`, without pauses."""
    whole = b"".join(data for _, data in answer.pieces)
    return replace(answer, pieces=tuple((0.0, whole[i : i + size]) for i in range(0, len(whole), size)))
