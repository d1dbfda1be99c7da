"""Waiting until a server has nothing else to do: what an earlier request left running would be measured with ours.

The server's own count of running requests decides where its metrics page has one. Elsewhere a request of one token must
come back about as fast as the fastest of them did: a server that is busy lets it wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from forerun.core.errors import LoadError
from forerun.lab.endpoint.client import Server
from forerun.lab.endpoint.faults import Fault
from forerun.lab.endpoint.metrics import Scrape, busy, parse

_FIRST = 3  # probes that say how fast one can be
_SLOWER, _MORE_S = 2.0, 0.02  # a probe that takes longer than so many times the fastest, and so much, had to wait
_PAUSE_S = 0.05

Probe = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Quiet:
    """How it was seen that the server was idle, and whether it was."""

    by: Literal["metrics", "probe", "unchecked"]
    waited_s: float
    clean: bool
    scrape: Scrape | None = None
    """The last reading of the metrics page; None where there is none."""

    def to_json(self) -> dict[str, object]:
        """Without the page."""
        return {"by": self.by, "waited_s": round(self.waited_s, 3), "clean": self.clean}


class Watch:
    """Waits for one server, at most `limit_s` by `clock` each time; 0 looks once and does not wait."""

    def __init__(self, server: Server, limit_s: float, clock: Callable[[], float] = perf_counter) -> None:
        self._server = server
        self._clock = clock
        self._limit_s = limit_s
        self._fastest: dict[str, float] = {}
        self._counted = False

    async def quiet(self, model: str, probe: Probe) -> Quiet:
        """Wait until the server is idle, or the limit; `probe` sends one short request to `model`."""
        start = self._clock()
        while True:
            scrape = await self.read()
            count = busy(scrape or {})
            waited = self._clock() - start
            if count is None:
                return await self._by_probe(model, probe, scrape)
            if not count or waited >= self._limit_s:
                return Quiet("metrics", waited, not count, scrape)
            await asyncio.sleep(_PAUSE_S)

    async def read(self) -> Scrape | None:
        """The metrics page now; None where there is none.

        LoadError for a page that was asked for by name and never answered: without it the counters would be missing.
        """
        address = self._server.address
        scrape: Scrape | None = None
        try:
            page = await self._server.get(address.metrics)
            if page.status == 200 and "html" not in page.headers.get("content-type", ""):
                scrape = parse(page.text)
            why = f"it answers {page.status}, without a metric"
        except Fault as fault:
            why = str(fault)
        self._counted = self._counted or bool(scrape)
        if address.given and not self._counted:
            raise LoadError(f"--metrics {address.metrics} cannot be read: {why}")
        return scrape

    async def _by_probe(self, model: str, probe: Probe, scrape: Scrape | None) -> Quiet:
        if not self._limit_s:
            return Quiet("unchecked", 0.0, True, scrape)
        start = self._clock()
        for _ in range(0 if model in self._fastest else _FIRST):
            await self._timed(model, probe)
        while True:
            took, waited = await self._timed(model, probe), self._clock() - start
            free = took <= _SLOWER * self._fastest[model] + _MORE_S
            if free or waited >= self._limit_s:
                return Quiet("probe", waited, free, await self.read() if scrape is not None else None)
            await asyncio.sleep(_PAUSE_S)

    async def _timed(self, model: str, probe: Probe) -> float:
        start = self._clock()
        await probe()
        took = self._clock() - start
        self._fastest[model] = min(took, self._fastest.get(model, took))
        return took
