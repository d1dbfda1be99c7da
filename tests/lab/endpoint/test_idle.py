"""A server with other work is waited for, by its own count or by a probe."""

import asyncio
from time import perf_counter

import pytest

from forerun.core.errors import LoadError
from forerun.lab.endpoint.client import Address, Server
from forerun.lab.endpoint.idle import Watch

from .server import LabServer


def watched(lab, limit_s, clock=perf_counter):
    async def nothing():
        await asyncio.sleep(0)

    async def run():
        server = Server(Address.parse(lab.url))
        try:
            return await Watch(server, limit_s, clock).quiet("A", nothing)
        finally:
            await server.close()

    return asyncio.run(run())


class Busy:
    """A metrics page of a server that is busy for so many looks at it, and a clock by which each takes a second."""

    def __init__(self, looks):
        self.looks, self.now = looks, 0.0

    def page(self, server):
        self.now += 1.0
        return f"llamacpp:requests_processing {int(self.now <= self.looks)}\n"

    def clock(self):
        return self.now


def test_an_abandoned_request_is_waited_for():
    busy = Busy(4)
    with LabServer(metrics=busy.page) as lab:
        quiet = watched(lab, 50, busy.clock)
    assert (quiet.by, quiet.clean, quiet.waited_s) == ("metrics", True, 5.0)


@pytest.mark.parametrize(("limit", "waited"), [(0, 1.0), (2.5, 3.0)])
def test_a_server_that_stays_busy_is_marked(limit, waited):
    busy = Busy(60)
    with LabServer(metrics=busy.page) as lab:
        quiet = watched(lab, limit, busy.clock)
    assert (quiet.by, quiet.clean, quiet.waited_s) == ("metrics", False, waited)


@pytest.mark.parametrize(("limit", "clean", "waited"), [(5, True, 0.402), (0.1, False, 0.16)])
def test_without_metrics_a_probe_that_has_to_wait_tells(limit, clean, waited):
    """Four quick probes, then slow ones, which become quick again after five."""
    now, count = 0.0, 0

    async def probe():
        nonlocal now, count
        count += 1
        now += 0.08 if 4 < count <= 9 else 0.002

    async def run():
        server = Server(Address.parse(lab.url))
        try:
            watch = Watch(server, limit, lambda: now)
            return await watch.quiet("A", probe), await watch.quiet("A", probe)
        finally:
            await server.close()

    with LabServer() as lab:
        first, second = asyncio.run(run())
    assert (first.by, second.by, first.clean) == ("probe", "probe", True)
    assert second.clean == clean
    assert second.waited_s == pytest.approx(waited)


def test_no_wait_and_no_metrics_is_said_to_be_unchecked():
    with LabServer() as lab:
        assert watched(lab, 0).by == "unchecked"


def test_a_page_that_was_asked_for_must_be_there_once_and_may_fail_later():
    pages = ["vllm:num_requests_running 0\n", None]

    async def run(lab):
        server = Server(Address.parse(lab.url, f"{lab.url}/metrics"))
        try:
            watch = Watch(server, 0)
            return await watch.read(), await watch.read()
        finally:
            await server.close()

    with LabServer(metrics=lambda server: pages.pop(0) if pages else None) as lab:
        there, gone = asyncio.run(run(lab))
        assert (list(there), gone) == (["vllm:num_requests_running"], None)
        with pytest.raises(LoadError, match="cannot be read: it answers 404"):
            asyncio.run(run(lab))
