"""A connection to a server that speaks OpenAI's protocol: one request at a time, its faults named."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from forerun.core.errors import SpecError
from forerun.lab.endpoint.chunk import broken, is_error
from forerun.lab.endpoint.faults import Fault, shown
from forerun.lab.endpoint.reply import Listener, Reply
from forerun.lab.endpoint.sse import Events

if TYPE_CHECKING:
    import httpx

_AGAIN = (408, 409, 425, 429, 500, 502, 503, 504)  # answers that a later try may better
_CONNECT_S = 10.0
_STALE = 3  # connections that may turn out to be closed, one after another
_FINISH_S = 2.0  # how long counts are waited for behind the end of an answer, where no [DONE] comes
_DRAIN_S = 0.2  # what comes behind [DONE] is read so that the connection can serve again
_VERSION = re.compile(r"/v\d+$")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is: `base` ends in /v1 (or as given), `metrics` is its Prometheus page."""

    base: str
    metrics: str
    given: bool = False
    """Whether somebody gave `metrics`: then it must be there."""

    @staticmethod
    def parse(url: str, metrics: str | None = None) -> Address:
        """Of http://host:port, with or without /v1; SpecError for what is no such address."""
        parts = _parts("--url", url)
        if parts.query or parts.fragment:
            raise SpecError(f"--url takes no query, as http://127.0.0.1:8000/v1, got {url!r}")
        if metrics is not None:
            _parts("--metrics", metrics)
        root = url.rstrip("/")
        base = root if urlsplit(root).path else root + "/v1"
        return Address(base, metrics or _VERSION.sub("", base) + "/metrics", metrics is not None)


def _parts(option: str, url: str) -> SplitResult:
    """An address in its parts; SpecError for what is none."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not close
        whole = False
    if not whole or re.search(r"[\s\x00-\x1f]", url):
        raise SpecError(f"{option} takes an address as http://127.0.0.1:8000/v1, got {url!r}")
    if "@" in parts.netloc:
        raise SpecError(f"{option} must not hold a password: it would stand in results; give a key by --key-env")
    return parts


@dataclass(frozen=True, slots=True)
class Page:
    """A plain answer."""

    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> object:
        """Its text as JSON; ValueError if it is none."""
        return json.loads(self.text)


class _Stale(Exception):
    """The connection broke before the server said anything."""


class Server:
    """Requests to one server. Use it in one event loop, and close it."""

    def __init__(self, address: Address, *, key: str | None = None, timeout_s: float = 300.0) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._httpx: Any = library()
        headers = {"Accept-Encoding": "identity"}  # compression holds events back
        if key:
            headers["Authorization"] = f"Bearer {key}"
        secure = "https://" in (address.base + address.metrics)
        self._http: httpx.AsyncClient = self._httpx.AsyncClient(
            headers=headers,
            verify=secure,  # certificates take a while to read, and plain connections have none
            timeout=self._httpx.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s)),
            limits=self._httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=None),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def stream(self, path: str, body: Mapping[str, object]) -> tuple[Reply, str]:
        """One streamed answer and its text; Fault for everything else.

        A connection that the server closed while it was kept is found out by using it; that is no fault of the request,
        which is sent again.
        """
        for _ in range(_STALE):
            with suppress(_Stale):
                return await self._once(path, body)
        raise Fault("cut off", "the server takes connections and closes them without a word", again=True)

    async def _once(self, path: str, body: Mapping[str, object]) -> tuple[Reply, str]:
        listener = Listener()
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._listen(path, body, listener)
        except (TimeoutError, self._httpx.ReadTimeout, self._httpx.WriteTimeout):
            raise Fault("timeout", f"no whole answer within {self.timeout_s:g} s (--timeout)") from None
        except (self._httpx.ConnectError, self._httpx.ConnectTimeout) as error:
            raise self._refused(error, self.address.base) from None
        except self._httpx.HTTPError as error:
            if not listener.begun:
                raise _Stale from None
            why = f"the connection broke: {shown(str(error)) or type(error).__name__}"
            raise Fault("cut off", why, again=not listener.heard) from None
        return listener.reply(), listener.text

    async def get(self, url: str) -> Page:
        """A page as it is; Fault if there is no answer at all."""
        why: Exception | None = None
        for _ in range(_STALE):
            try:
                async with asyncio.timeout(min(self.timeout_s, 30.0)):
                    response = await self._http.get(url)
                return Page(response.status_code, dict(response.headers), response.text)
            except (TimeoutError, self._httpx.TimeoutException):
                raise Fault("timeout", f"no answer from {url}", again=True) from None
            except self._httpx.HTTPError as error:
                why = error
            except (self._httpx.InvalidURL, UnicodeError) as error:  # a name that no host can have
                raise Fault("refused", f"cannot connect to {url}: {shown(str(error))}") from None
        assert why is not None
        raise self._refused(why, url) from None

    async def warm(self, connections: int) -> None:
        """Open that many connections, so that no measured request has to."""
        await asyncio.gather(*(self.get(f"{self.address.base}/models") for _ in range(connections)))

    async def _listen(self, path: str, body: Mapping[str, object], listener: Listener) -> None:
        events = Events()
        start = perf_counter()
        async with self._http.stream("POST", self.address.base + path, json=body) as response:
            listener.begun = True
            await _check(response)
            chunks = response.aiter_bytes()
            while (data := await _next(chunks, _FINISH_S if listener.finished else None)) is not None:
                now = perf_counter() - start
                for event in events.feed(data):
                    listener.take(event, now)
                if listener.done:
                    await self._drain(chunks)
                    return
            for event in events.flush():
                listener.take(event, perf_counter() - start)

    async def _drain(self, chunks: AsyncIterator[bytes]) -> None:
        with suppress(TimeoutError, self._httpx.HTTPError):
            async with asyncio.timeout(_DRAIN_S):
                async for _ in chunks:
                    pass

    def _refused(self, error: Exception, url: str) -> Fault:
        why = shown(str(error)) or type(error).__name__
        return Fault("refused", f"cannot connect to {url}: {why}; is the server up?", again=True)


def library() -> Any:
    """httpx; SpecError that names the extra where it is missing."""
    try:
        return import_module("httpx")
    except ImportError:
        raise SpecError('other servers are asked with httpx, which is missing: pip install "forerun[lab]"') from None


async def _next(chunks: AsyncIterator[bytes], limit_s: float | None) -> bytes | None:
    """The next bytes; None at the end, and where none come within the limit."""
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            return await anext(chunks, None)
    except TimeoutError:
        if limit.expired():
            return None
        raise


async def _check(response: httpx.Response) -> None:
    """Fault unless a stream of events follows."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status_code == 200 and kind not in ("application/json", "text/html"):
        return
    body = (await response.aread())[:4096].decode("utf-8", "replace")
    if response.status_code == 200:
        error = _error(body)
        if error is not None:
            raise broken(error)
        raise Fault("not a stream", f"the server answers {kind} where a stream of events was asked for: {shown(body)}")
    status = response.status_code
    fault = Fault(
        f"status {status}", f"the server answers {status}: {shown(body) or response.reason_phrase}", status=status
    )
    fault.again = status in _AGAIN
    fault.after = _retry_after(response.headers.get("retry-after"))
    raise fault


def _error(body: str) -> object:
    """The error that a page is; None if it is none."""
    with suppress(ValueError):
        value = json.loads(body)
        if isinstance(value, dict) and is_error(value):
            return value
    return None


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date."""
    if value is None:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", value.strip(), re.ASCII):
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
