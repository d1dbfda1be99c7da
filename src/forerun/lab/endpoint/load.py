"""A block of requests, so many at once, each asked again where that is of use.

What a request took is the time of the attempt that succeeded. That others failed before it, and how long it waited, is
noted beside it: a block in which that happened says nothing of the server's throughput.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter, process_time
from typing import Any

from forerun.core.errors import SpecError
from forerun.lab.endpoint.client import Server
from forerun.lab.endpoint.faults import Fault
from forerun.lab.endpoint.reply import Reply


@dataclass(frozen=True, slots=True)
class Patience:
    """How often, and after what wait, a request is asked again."""

    retries: int = 3
    backoff_s: float = 0.5
    """Before the first repetition; twice as long before each further one."""
    most_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.retries <= 100:
            raise SpecError(f"--retries takes a whole number from 0 to 100, got {self.retries}")

    def wait(self, attempt: int, fault: Fault) -> float | None:
        """Seconds before the attempt that follows number `attempt` (from 1); None to give up."""
        if not fault.again or attempt > self.retries:
            return None
        wished = self.backoff_s * 2.0 ** (attempt - 1) if fault.after is None else fault.after
        if fault.after is not None and wished > self.most_s:
            return None
        return min(wished, self.most_s)


@dataclass(frozen=True, slots=True)
class Job:
    """One request."""

    prompt: str
    turn: int
    path: str
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Record:
    """What became of a request: a reply, or a fault (its kind, and a line about it)."""

    prompt: str
    turn: int
    start_s: float
    """Since the block began; of the last attempt."""
    attempts: int
    waited_s: float
    reply: Reply | None
    kind: str = ""
    fault: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        times = {"start_s": round(self.start_s, 5), "waited_s": round(self.waited_s, 3)}
        return {**asdict(self), **times, "reply": self.reply and self.reply.to_json()}


@dataclass(frozen=True, slots=True)
class Block:
    """All requests of a block in the order given, the texts that came, and how long it took."""

    records: tuple[Record, ...]
    texts: tuple[str, ...]
    wall_s: float
    cpu_s: float
    """Processor time of this process meanwhile: a client that is busy measures itself."""


async def run_block(server: Server, jobs: Sequence[Job], at_once: int, patience: Patience) -> Block:
    """Ask all `jobs`, at most `at_once` at a time: as one ends the next begins."""
    free = asyncio.Semaphore(at_once)
    start, cpu = perf_counter(), process_time()

    async def one(job: Job) -> tuple[Record, str]:
        async with free:
            return await _persist(server, job, start, patience)

    found = await asyncio.gather(*(one(job) for job in jobs))
    return Block(
        tuple(record for record, _ in found),
        tuple(text for _, text in found),
        perf_counter() - start,
        process_time() - cpu,
    )


async def _persist(server: Server, job: Job, start: float, patience: Patience) -> tuple[Record, str]:
    waited, attempt = 0.0, 0
    while True:
        attempt += 1
        began = perf_counter() - start
        try:
            reply, text = await server.stream(job.path, job.body)
            return Record(job.prompt, job.turn, began, attempt, waited, reply), text
        except Fault as fault:
            pause = patience.wait(attempt, fault)
            if pause is None:
                return Record(job.prompt, job.turn, began, attempt, waited, None, fault.kind, str(fault)), ""
        await asyncio.sleep(pause)
        waited += pause
