"""An engine for many callers: one thread steps it, and requests come from asyncio and from other threads.

What can be refused is refused where it is asked. Everything else that goes wrong with a request is raised in its own
stream. A stream that is left early cancels its request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import aclosing, closing, suppress
from queue import SimpleQueue
from threading import Lock, Thread
from types import TracebackType

from forerun.core.errors import SpecError
from forerun.core.params import SamplingParams
from forerun.engine.admission import Prompt, admit
from forerun.engine.engine import Engine, with_changes
from forerun.engine.results import Event, Result

News = Event | Result | BaseException
"""What a request hears: events, then its result or what it failed of."""
Tell = Callable[[News], None]


class AsyncEngine:
    """Serves `engine`, which is its own from now on.

    async with AsyncEngine(forerun.load("smollm2")) as served:
        async for event in served.stream("Why do leaves fall?"):
            print(event.text, end="")
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._tell: dict[int, Tell] = {}
        """By request: who hears of it. Of the stepping thread."""
        self._closing = Lock()
        self._closed = False
        self._ended = False
        self._thread = Thread(target=self._run, name="forerun-engine", daemon=True)
        self._thread.start()

    async def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, **changes: object
    ) -> AsyncIterator[Event]:
        """Events of one request as they come. Raises as `Engine.add` does, and what the request fails of."""
        async with aclosing(self._heard(prompt, params, changes)) as heard:
            async for news in heard:
                if isinstance(news, Event):
                    yield news

    async def generate(self, prompt: Prompt, params: SamplingParams | None = None, **changes: object) -> Result:
        """The whole answer; raises as `stream` does."""
        async with aclosing(self._heard(prompt, params, changes)) as heard:
            result, *_ = [news async for news in heard if isinstance(news, Result)]
            return result

    def stream_blocking(
        self, prompt: Prompt, params: SamplingParams | None = None, **changes: object
    ) -> Iterator[Event]:
        """`stream` for a thread without asyncio."""
        with closing(self._heard_blocking(prompt, params, changes)) as heard:
            yield from (news for news in heard if isinstance(news, Event))

    def generate_blocking(self, prompt: Prompt, params: SamplingParams | None = None, **changes: object) -> Result:
        """`generate` for a thread without asyncio."""
        with closing(self._heard_blocking(prompt, params, changes)) as heard:
            return next(news for news in heard if isinstance(news, Result))

    async def close(self) -> None:
        """Take no more requests, answer those that are open, and end the thread."""
        await asyncio.to_thread(self.close_blocking)

    def close_blocking(self) -> None:
        """`close` for a thread without asyncio."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._calls.put(self._end)
        self._thread.join()

    async def __aenter__(self) -> AsyncEngine:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> AsyncEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close_blocking()

    async def _heard(
        self, prompt: Prompt, params: SamplingParams | None, changes: dict[str, object]
    ) -> AsyncGenerator[News, None]:
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[News]()
        cancel = self._ask(prompt, params, changes, lambda news: _put(loop, queue, news))
        try:
            while not isinstance(news := _raised(await queue.get()), Result):
                yield news
            yield news
        finally:
            cancel()

    def _heard_blocking(
        self, prompt: Prompt, params: SamplingParams | None, changes: dict[str, object]
    ) -> Generator[News, None, None]:
        queue = SimpleQueue[News]()
        cancel = self._ask(prompt, params, changes, queue.put)
        try:
            while not isinstance(news := _raised(queue.get()), Result):
                yield news
            yield news
        finally:
            cancel()

    def _ask(
        self, prompt: Prompt, params: SamplingParams | None, changes: dict[str, object], tell: Tell
    ) -> Callable[[], None]:
        """Queue a request whose news go to `tell`; what is returned cancels it, if it is still open."""
        ids, params = admit(
            prompt, with_changes(params or SamplingParams(), changes), self.engine.parts, self.engine.words
        )
        mine: list[int] = []

        def begin() -> None:
            try:
                mine.append(self.engine.add(ids, params))
                self._tell[mine[0]] = tell
            except Exception as error:
                tell(error)

        with self._closing:
            if self._closed:
                raise SpecError("this engine is closed: it takes no more requests")
            self._calls.put(begin)
        return lambda: self._calls.put(lambda: self._forget(*mine))

    # What follows runs in the stepping thread.

    def _run(self) -> None:
        while not (self._ended and not self.engine.busy):
            while not self.engine.busy or not self._calls.empty():
                self._calls.get()()
                if self._ended:
                    break
            try:
                for event in self.engine.step() if self.engine.busy else ():
                    self._hear(event)
            except Exception as error:
                for request in list(self._tell):
                    self._told(request, error)
        self.engine.close()

    def _end(self) -> None:
        self._ended = True

    def _hear(self, event: Event) -> None:
        """Pass an event on; after its last one a request hears its result, or its own error."""
        request = event.request_id
        if request in self._tell and event.finish_reason != "error":
            self._told(request, event)
        if request in self._tell and self.engine.finished(request):
            try:
                self._told(request, self.engine.collect(request))
            except Exception as error:
                self._told(request, error)

    def _told(self, request: int, news: News) -> None:
        """Tell, and forget a request that needs no more telling, or that nobody hears of."""
        try:
            self._tell[request](news)
            over = not isinstance(news, Event)
        except RuntimeError:  # its loop has ended
            over = True
        if over:
            self._forget(request)

    def _forget(self, *requests: int) -> None:
        for request in requests:
            if self._tell.pop(request, None):
                with suppress(SpecError):  # a request that was collected is not known any more
                    self.engine.cancel(request)


def _raised(news: News) -> Event | Result:
    if isinstance(news, BaseException):
        raise news
    return news


def _put(loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[News], news: News) -> None:
    loop.call_soon_threadsafe(queue.put_nowait, news)
