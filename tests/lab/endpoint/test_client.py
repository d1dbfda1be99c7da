"""Faults of a server, one by one: each a line, and asked again where that is of use."""

import asyncio
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from time import perf_counter

import pytest

from forerun.core.errors import LoadError, SpecError
from forerun.lab.endpoint import client
from forerun.lab.endpoint.client import Address, Server
from forerun.lab.endpoint.faults import Fault
from forerun.lab.endpoint.load import Job, Patience, run_block
from forerun.lab.endpoint.request import Ask, agree

from .server import Answer, LabServer, Script, event, page, split

HELLO = {"model": "A", "messages": [{"role": "user", "content": "hello"}], "stream": True}
SHORT = Patience(2, 0.01)


def ask(lab, *, timeout_s=5.0, key=None):
    async def once():
        server = Server(Address.parse(lab.url), key=key, timeout_s=timeout_s)
        try:
            return await server.stream("/chat/completions", HELLO)
        finally:
            await server.close()

    return asyncio.run(once())


def block(lab, jobs=1, at_once=1, patience=SHORT):
    async def run():
        server = Server(Address.parse(lab.url), timeout_s=5.0)
        try:
            asked = [Job(f"p{i}", 0, "/chat/completions", HELLO) for i in range(jobs)]
            return await run_block(server, asked, at_once, patience)
        finally:
            await server.close()

    return asyncio.run(run())


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_answer_is_the_same_however_its_bytes_are_cut(size):
    script = Script(tokens=6, per_event=3, text="д€😀", usage="continuous")
    with LabServer(lambda asked: split(script.answer(), size)) as lab:
        reply, text = ask(lab)
    assert text == "д€😀" * 6
    assert [tokens for _, tokens in reply.events] == [3, 3]
    assert (reply.tokens, reply.finish, reply.counted) == (6, "length", True)


def test_running_counts_that_hold_rejected_predictions_are_not_what_came():
    with LabServer(Script(tokens=8, usage="continuous", details={"rejected_prediction_tokens": 3})) as lab:
        reply, _ = ask(lab)
    assert (reply.tokens, reply.counted, len(reply.events)) == (5, False, 8)
    assert reply.after_first == 5 * 7 / 8


def test_keep_alives_and_crlf_are_no_events():
    plain = Script(tokens=2).answer()
    noisy = [(pause, b": ping\r\n\r\n" + data.replace(b"\n", b"\r\n")) for pause, data in plain.pieces]
    with LabServer(lambda asked: Answer(tuple(noisy))) as lab:
        reply, text = ask(lab)
    assert (text, len(reply.events), reply.tokens) == ("ab ab ", 2, 2)


ALIVE = (
    b"data:\n\n",
    b"data: \r\n\r\n",
    b"event: ping\ndata: {}\n\n",
    b":\n\n",
    b"data:\ndata:\n\n",
    b"data: null\n\n",
)


@pytest.mark.parametrize("alive", ALIVE)
def test_249_keep_alives_of_every_form_leave_the_answer_and_its_time_alone(alive):
    plain = Script(tokens=2, gap_s=0.01).answer()
    noisy = [piece for pause, data in plain.pieces for piece in ((0.0, alive), (pause, data))]
    with LabServer(lambda asked: Answer(tuple(noisy))) as lab:
        reply, text = ask(lab)
    assert (text, len(reply.events), reply.tokens, reply.finish) == ("ab ab ", 2, 2, "length")


def test_249_a_keep_alive_behind_the_answer_is_no_part_of_its_time():
    answer = Script(tokens=2, done=False).answer()
    with LabServer(lambda asked: replace(answer, pieces=(*answer.pieces, (0.5, b"data:\n\n")))) as lab:
        assert ask(lab)[0].latency_s < 0.4


def test_249_without_done_a_connection_that_stays_open_does_not_hold_the_answer_back(monkeypatch):
    monkeypatch.setattr("forerun.lab.endpoint.client._FINISH_S", 0.1)
    answer = Script(tokens=2, done=False).answer()
    with LabServer(lambda asked: replace(answer, pieces=(*answer.pieces, (30.0, b"data:\n\n")))) as lab:
        reply, text = ask(lab)
    assert (text, reply.tokens, reply.finish) == ("ab ab ", 2, "length")


def test_an_answer_ends_with_done_or_with_a_finish_reason():
    with LabServer(Script(tokens=2, done=False, usage="none")) as lab:
        assert ask(lab)[0].finish == "length"
    with LabServer(Script(tokens=2, finish="")) as lab:
        assert ask(lab)[0].finish == ""


def test_a_connection_that_stays_open_behind_done_does_not_hold_the_answer_back():
    late = Script(tokens=2).answer()
    late = replace(late, pieces=(*late.pieces, (30.0, b": still here\n\n")))
    with LabServer(lambda asked: late) as lab:
        start = perf_counter()
        reply, _ = ask(lab)
        whole = perf_counter() - start
    assert reply.latency_s <= whole - client._DRAIN_S, "what is waited for behind it is not the answer's"


def test_the_key_goes_into_the_header_and_nowhere_else():
    with LabServer() as lab:
        ask(lab, key="secret")
        (asked,) = lab.asked
    assert asked.headers["authorization"] == "Bearer secret"
    assert "secret" not in str(asked.body)
    assert asked.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (Script(tokens=8, stop_after=3).answer(), "cut off", "the connection broke"),
        (Answer(((0.0, event({"choices": [{"delta": {"content": "a"}}]})),)), "cut off", "after 1 events, without"),
        (page('{"choices": []}'), "not a stream", "answers application/json where a stream"),
        (page("<html>hi</html>", kind="text/html"), "not a stream", "text/html"),
        (page("", kind="text/plain"), "not a stream", "held no event"),
        (Answer(((0.0, b'data: {"choices": [\n\n'),)), "invalid JSON", "not JSON"),
        (Answer(((0.0, b"data: \xff\xfe\n\n"),)), "not a stream", "not UTF-8"),
        (Answer(((0.0, event({"error": {"message": "no memory"}})),)), "server error", "no memory"),
        (page('{"error": {"message": "no memory"}}'), "server error", "broke off: no memory"),
        (page('{"object": "error", "message": "too long"}'), "server error", "broke off: too long"),
        (Answer(((0.0, b"event: error\ndata: overloaded\n\n"),)), "server error", "broke off: overloaded"),
        (Answer(((0.0, b"event: error\r\n\r\n"),)), "server error", "does not say why"),
        (page('{"error": "what?"}', 400), "status 400", "answers 400: .*what"),
    ],
)
def test_faults_have_a_kind_and_a_line(answer, kind, message):
    with LabServer(lambda asked: answer) as lab:
        with pytest.raises(Fault, match=message) as caught:
            ask(lab)
        assert caught.value.kind == kind
        assert "\n" not in str(caught.value)


def test_a_server_that_falls_silent_is_given_up_even_if_it_keeps_the_connection_alive():
    pings = tuple((0.05, b": ping\n\n") for _ in range(100))
    with LabServer(lambda asked: Answer(pings)) as lab, pytest.raises(Fault, match=r"within 0\.3 s") as caught:
        ask(lab, timeout_s=0.3)
    assert caught.value.kind == "timeout"


def test_nobody_listens():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"

        async def once():
            server = Server(Address.parse(url))
            try:
                await server.stream("/chat/completions", HELLO)
            finally:
                await server.close()

        with pytest.raises(Fault, match=r"cannot connect to http://127.*is the server up") as caught:
            asyncio.run(once())
    assert caught.value.again


def flaky(*first):
    """Those answers first, a good one from then on."""
    return lambda asked: first[asked.number] if asked.number < len(first) else Script(tokens=4, first_s=0.02).answer()


def test_too_many_requests_and_server_errors_are_asked_again_and_the_time_is_that_of_the_good_attempt():
    refused = page("slow down", 429, "text/plain", retry_after="0.3")
    with LabServer(flaky(refused, page("oh", 500))) as lab:
        start = perf_counter()
        (record,) = block(lab).records
        whole = perf_counter() - start
    assert (record.attempts, record.kind, record.reply.tokens) == (3, "", 4)
    assert record.waited_s == pytest.approx(0.3 + 0.02)
    assert 0.02 < record.reply.latency_s <= whole - record.waited_s
    assert record.start_s >= record.waited_s


def test_retry_after_may_be_a_date_and_one_that_is_too_far_is_not_waited_for():
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=1), usegmt=True)
    with (
        LabServer(lambda asked: page("wait", 429, "text/plain", retry_after=soon)) as lab,
        pytest.raises(Fault) as late,
    ):
        ask(lab)
    assert 0 <= late.value.after <= 1
    assert Patience(retries=3).wait(1, Fault("status 429", "", again=True, after=3600.0)) is None
    assert Patience(retries=3, backoff_s=1).wait(3, Fault("status 500", "", again=True)) == 4
    assert Patience(retries=3).wait(4, Fault("status 500", "", again=True)) is None
    assert Patience(retries=3).wait(1, Fault("status 404", "")) is None


def test_what_fails_for_good_is_recorded_and_the_others_are_not_touched():
    def say(asked):
        return page("no", 500) if asked.number in (1, 3, 4) else Script(tokens=4).answer()

    with LabServer(say) as lab:
        done = block(lab, jobs=3, patience=Patience(2, 0.0))
    assert [(record.kind, record.attempts) for record in done.records] == [("", 1), ("", 2), ("", 3)]
    with LabServer(say) as lab:
        done = block(lab, jobs=3, patience=Patience(0))
    assert [record.kind for record in done.records] == ["", "status 500", ""]
    assert [record.reply is None for record in done.records] == [False, True, False]


def test_a_kept_connection_that_the_server_closed_is_no_fault():
    with LabServer(flaky(Answer(mute=True), Answer(mute=True))) as lab:
        (record,) = block(lab).records
        assert len(lab.asked) == 3
    assert (record.attempts, record.reply.tokens) == (1, 4)
    with LabServer(lambda asked: Answer(mute=True)) as lab, pytest.raises(Fault, match="without a word"):
        ask(lab)


def test_a_broken_stream_is_not_asked_again():
    with LabServer(Script(tokens=8, stop_after=3)) as lab:
        (record,) = block(lab).records
        assert len(lab.asked) == 1
    assert (record.kind, record.attempts) == ("cut off", 1)


def test_as_many_run_at_once_as_asked_and_no_more():
    with LabServer(Script(tokens=3), together=3) as lab:
        done = block(lab, jobs=9, at_once=3)
        assert lab.most == 3
    assert done.wall_s < sum(record.reply.latency_s for record in done.records)
    assert [record.prompt for record in done.records] == [f"p{i}" for i in range(9)]


def test_the_richest_form_that_a_server_accepts_is_found():
    def old(asked):
        if asked.body.get("stream_options"):
            return page('{"error": {"message": "unknown field stream_options"}}', 422)
        if "max_tokens" in asked.body:
            return page('{"error": {"message": "use max_completion_tokens"}}', 400)
        return Script(tokens=2, usage="none").answer()

    async def form(lab, owner=""):
        server = Server(Address.parse(lab.url))
        try:
            found, _ = await agree(server, Ask(tokens=7), "A", owner)
            return found
        finally:
            await server.close()

    with LabServer(old) as lab:
        found = asyncio.run(form(lab))
        last = lab.asked[-1].body
    assert (found.usage, found.limit) == ("none", "max_completion_tokens")
    assert last["max_completion_tokens"] == 7
    with LabServer() as lab:
        found = asyncio.run(form(lab, "llamacpp"))
        assert lab.asked[0].body["timings_per_token"] is True
        assert lab.asked[0].body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert found.usage == "continuous"
    strict = lambda asked: page("no timings_per_token", 400) if "timings_per_token" in asked.body else Script().answer()
    with LabServer(strict) as lab:
        found = asyncio.run(form(lab, "llamacpp"))
    assert (found.usage, found.extra) == ("continuous", {})
    with (
        LabServer(lambda asked: page("no model A", 404)) as lab,
        pytest.raises(LoadError, match=r"'A'.*404.*no model A"),
    ):
        asyncio.run(form(lab))


@pytest.mark.parametrize(
    ("url", "base", "metrics"),
    [
        ("http://h:1", "http://h:1/v1", "http://h:1/metrics"),
        ("http://h:1/v1/", "http://h:1/v1", "http://h:1/metrics"),
        ("https://h/openai/v1", "https://h/openai/v1", "https://h/openai/metrics"),
        ("https://h/api", "https://h/api", "https://h/api/metrics"),
    ],
)
def test_addresses(url, base, metrics):
    assert Address.parse(url) == Address(base, metrics, given=False)
    assert Address.parse(url, "http://m/x").given
    assert Address.parse(url, "http://m/x").metrics == "http://m/x"


NO_ADDRESS = (
    "h:8000", "ftp://h", "http://", "http://:80", "http://me:pw@h", "http://localhost:80a", "http://localhost:99999",
    "http://[::1", "http://h\n:80", "http://a b",
)  # fmt: skip


@pytest.mark.parametrize("url", [*NO_ADDRESS, "http://h/v1?key=1"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(SpecError, match="--url") as caught:
        Address.parse(url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", NO_ADDRESS)
def test_a_metrics_page_that_is_no_address_is_refused(url):
    with pytest.raises(SpecError, match="--metrics"):
        Address.parse("http://h", url)


def test_a_name_that_no_host_can_have_is_a_fault():
    async def once():
        server = Server(Address.parse("http://h"))
        try:
            await server.get("http://\u00e4..b/metrics")
        finally:
            await server.close()

    with pytest.raises(Fault, match="cannot connect to http://\u00e4"):
        asyncio.run(once())


def test_without_httpx_the_extra_is_named(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(client, "import_module", missing)
    with pytest.raises(SpecError, match=r'pip install "forerun\[lab\]"'):
        Server(Address.parse("http://h"))
