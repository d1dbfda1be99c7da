"""One engine, many callers: each hears what it would hear alone, and what goes wrong concerns its own request."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import forerun
from forerun.core.errors import SpecError
from forerun.engine.async_engine import AsyncEngine

PROMPTS = ["one two three one two three", "three two", "one", "two one two one"]


@pytest.fixture
def engine(models):
    return forerun.load(models["folder"], "ngram:min=1", max_batch=3)


@pytest.fixture(scope="module")
def alone(models):
    """Texts and counts of each prompt by itself."""
    engine = forerun.load(models["folder"], "ngram:min=1")
    return [engine.generate(prompt, max_tokens=24) for prompt in PROMPTS]


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


def test_requests_from_asyncio_and_from_threads_are_answered_as_alone(engine, alone):
    async def told(served, prompt):
        events = [event async for event in served.stream(prompt, max_tokens=24)]
        return "".join(event.text for event in events), events[-1].finish_reason

    async def all_of_them():
        async with AsyncEngine(engine) as served:
            with ThreadPoolExecutor(4) as pool:
                whole = [pool.submit(served.generate_blocking, prompt, max_tokens=24) for prompt in PROMPTS]
                parts = [pool.submit(lambda p: list(served.stream_blocking(p, max_tokens=24)), p) for p in PROMPTS]
                here = await asyncio.gather(*(told(served, prompt) for prompt in PROMPTS))
                results = await asyncio.gather(*(served.generate(prompt, max_tokens=24) for prompt in PROMPTS))
                return here, results, [w.result() for w in whole], [p.result() for p in parts]

    here, results, whole, parts = run(all_of_them())
    assert here == [(one.text, one.choices[0].finish_reason) for one in alone]
    for one, other, events, wanted in zip(results, whole, parts, alone, strict=True):
        assert one.token_ids == other.token_ids == wanted.token_ids
        assert "".join(event.text for event in events) == wanted.text
    assert not engine.busy


def test_several_answers_of_one_request_end_with_the_last(engine):
    async def ask():
        async with AsyncEngine(engine) as served:
            events = [e async for e in served.stream("one", n=3, temperature=1.0, seed=1, max_tokens=9)]
            return events, await served.generate("one", n=3, temperature=1.0, seed=1, max_tokens=9)

    events, result = run(ask())
    for choice in result.choices:
        assert "".join(event.text for event in events if event.index == choice.index) == choice.text


@pytest.mark.parametrize("how", ["break", "cancel"])
def test_leaving_the_loop_cancels_the_request_and_nobody_else_s(how, engine, alone):
    async def leave(served):
        async for _ in served.stream("one two", max_tokens=200, ignore_eos=True):
            if how == "break":
                break

    async def ask():
        async with AsyncEngine(engine) as served:
            task = asyncio.create_task(leave(served))
            other = asyncio.create_task(served.generate(PROMPTS[0], max_tokens=24))
            if how == "cancel":
                await asyncio.sleep(0)
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            result = await other
            while engine.busy:
                await asyncio.sleep(0.001)
            return result

    assert run(ask()).token_ids == alone[0].token_ids
    assert engine.parts.target.usage.used == 0


def test_one_request_s_error_is_its_own(engine, alone):
    def broken_grammar(tokens):
        raise ValueError("my grammar")

    async def ask():
        async with AsyncEngine(engine) as served:
            return await asyncio.gather(
                served.generate(PROMPTS[0], max_tokens=24),
                served.generate("one", max_tokens=9, allowed=broken_grammar),
                served.generate("one", temperature=-1),
                served.generate(PROMPTS[1], max_tokens=24),
                return_exceptions=True,
            )

    first, broken, refused, last = run(ask())
    assert (first.token_ids, last.token_ids) == (alone[0].token_ids, alone[1].token_ids)
    assert (type(broken), str(broken)) == (ValueError, "my grammar")
    assert isinstance(refused, SpecError)


def test_what_breaks_a_step_is_told_to_all_and_the_next_request_is_answered(engine, alone, monkeypatch):
    step = engine.step
    monkeypatch.setattr(engine, "step", lambda: (_ for _ in ()).throw(MemoryError("no memory")))

    async def ask():
        async with AsyncEngine(engine) as served:
            asked = [served.generate(prompt, max_tokens=24) for prompt in PROMPTS[:2]]
            failed = await asyncio.gather(*asked, return_exceptions=True)
            monkeypatch.setattr(engine, "step", step)
            return failed, await served.generate(PROMPTS[0], max_tokens=24)

    failed, result = run(ask())
    assert [type(error) for error in failed] == [MemoryError, MemoryError]
    assert result.token_ids == alone[0].token_ids


def test_closing_answers_what_is_open_and_takes_no_more(engine, alone):
    served = AsyncEngine(engine)
    with ThreadPoolExecutor(1) as pool:
        stream = served.stream_blocking(PROMPTS[0], max_tokens=24)
        text = next(stream).text
        rest = pool.submit(lambda: text + "".join(event.text for event in stream))
        served.close_blocking()
        assert rest.result() == alone[0].text
    served.close_blocking()
    with pytest.raises(SpecError, match="closed"):
        served.generate_blocking("one")
    assert "forerun-engine" not in [thread.name for thread in threading.enumerate()]


def test_a_loop_that_has_ended_costs_nobody_else_anything(engine, alone):
    with AsyncEngine(engine) as served:

        async def gone():
            stream = served.stream("one two", max_tokens=200, ignore_eos=True)
            await anext(stream)
            return stream

        loop = asyncio.new_event_loop()
        kept = loop.run_until_complete(gone())
        loop.close()
        assert served.generate_blocking(PROMPTS[0], max_tokens=24).token_ids == alone[0].token_ids
        del kept
