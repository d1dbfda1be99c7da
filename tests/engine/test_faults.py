"""Steps that break off: a request pays for its own faults alone, and nothing half done is kept."""

import itertools
from contextlib import nullcontext

import pytest

from forerun.control.fixed import Fixed
from forerun.core.draft import Tree
from forerun.core.errors import CapacityError, SpecError
from forerun.core.plan import Plan
from forerun.drafters.model import ModelDrafter
from forerun.testing.engines import scripted, toy_engine
from forerun.testing.scripted import ScriptedDrafter
from forerun.testing.toy import ToyTarget, fixed_law, table_law

V = 16
LAW = table_law(V, 1)


class Mine(Exception):
    """Raised by a caller's hook."""


def late(tokens):
    if len(tokens) >= 3:
        raise Mine("after three tokens")


def engine_of(target=None, drafter=None):
    drafter = drafter or ModelDrafter(ToyTarget(table_law(V, 2), V))
    return toy_engine(target or ToyTarget(LAW, V), drafter, depth=3, vocab_size=V, eos_ids=())


def alone(prompt, count=12):
    return toy_engine(LAW, vocab_size=V, eos_ids=()).generate(prompt, max_tokens=count).token_ids


def run(engine, *requests):
    while not all(map(engine.finished, requests)):
        engine.step()


def test_a_hook_that_fails_ends_its_own_request_only():
    engine = engine_of()
    good = engine.add([1, 2], max_tokens=12)
    bad = engine.add([3], max_tokens=12, allowed=late)
    reasons = []
    while not engine.finished(good):
        reasons += [event.finish_reason for event in engine.step() if event.request_id == bad]
    assert reasons[-1] == "error"
    assert engine.collect(good).token_ids == alone([1, 2])
    with pytest.raises(Mine):
        engine.collect(bad)
    assert engine.parts.target.free == engine.parts.target.slots
    assert not engine.busy


def test_a_stream_is_not_blamed_for_another_request():
    engine = engine_of()
    stream = engine.stream([1, 2], max_tokens=12)
    bad = engine.stream([3], max_tokens=12, allowed=late)
    got = [token.id for event in itertools.chain([next(stream)], [next(bad)][:0], stream) for token in event.tokens]
    assert got == alone([1, 2])
    with pytest.raises(Mine):
        list(bad)
    assert not engine.busy


def test_cancelling_a_failed_request_gives_what_it_has():
    engine = engine_of()
    bad = engine.add([3], max_tokens=12, allowed=late)
    run(engine, bad)
    result = engine.cancel(bad)
    assert (result.finish_reason, result.token_ids) == ("error", alone([3], len(result.token_ids)))


@pytest.mark.parametrize("where", ["score", "commit", "draft", "accept"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_a_step_that_breaks_off_anywhere_can_be_taken_again(where, when, kind):
    """Before, target and drafter could hold tokens that the sequence had not got, and every later step failed."""
    engine = engine_of()
    requests = [engine.add([p, 2], max_tokens=12) for p in range(3)]
    part = engine.parts.drafter if where in ("draft", "accept") else engine.parts.target
    inner, calls = getattr(part, where), itertools.count()

    def breaks(*args, **options):
        now = next(calls) % 4 == 2
        if now and when == "before":
            raise kind
        result = inner(*args, **options)
        if now:
            raise kind
        return result

    setattr(part, where, breaks)
    broken, quiet = 0, part is engine.parts.drafter and kind is RuntimeError
    with pytest.warns(RuntimeWarning, match="'model' is at fault: RuntimeError") if quiet else nullcontext():
        while not all(map(engine.finished, requests)):
            try:
                engine.step()
            except kind:
                broken += 1
    assert bool(broken) != quiet
    assert [engine.collect(r).token_ids for r in requests] == [alone([p, 2]) for p in range(3)]
    assert engine.parts.target.free == engine.parts.target.slots


def test_memory_that_can_never_suffice_ends_that_request_and_the_next_runs():
    engine = engine_of(ToyTarget(LAW, V, slots=12))
    big, small = engine.add([1] * 30, max_tokens=4), engine.add([1], max_tokens=4)
    run(engine, big, small)
    with pytest.raises(CapacityError, match="kv_tokens"):
        engine.collect(big)
    assert engine.collect(small).token_ids == alone([1], 4)


def test_a_stream_ends_when_its_request_is_cancelled_or_the_engine_closed():
    for close in (False, True):
        engine = engine_of()
        stream = engine.stream([1], max_tokens=40)
        request = next(stream).request_id
        if close:
            engine.close()
        else:
            engine.cancel(request)
        assert [event.finish_reason for event in stream] == ["cancelled"]
    engine = engine_of()
    stream = engine.stream([1], max_tokens=40)
    next(stream)
    engine.close()
    stream.close()


def test_what_was_held_back_is_in_a_cancelled_answer():
    from forerun.testing.engines import Letters

    engine = scripted([3, 4, 3, 4], words=Letters([b""] * 3 + [b"a", b"b"]), vocab_size=5)
    request = engine.add([1], stop="abx", max_tokens=4)
    engine.step()
    engine.step()
    assert engine.cancel(request).text == "ab"


def test_unknown_requests_are_named():
    engine = engine_of()
    for ask in (engine.finished, engine.collect, engine.cancel):
        with pytest.raises(SpecError, match="7"):
            ask(7)


@pytest.mark.parametrize("width", [1, 2])
def test_a_dead_end_that_is_only_guessed_is_nobodys_fault(width):
    """The drafter believes in 5, behind which the grammar allows nothing; the target never goes there."""
    target, draft = fixed_law([0.1, 0.1, 0.1, 0.1, 0.5, 0.1]), fixed_law([0.1, 0.1, 0.1, 0.1, 0.1, 0.5])

    def allowed(tokens):
        return [] if 5 in tokens else [3, 4, 5]

    engine = toy_engine(ToyTarget(target, 6), ModelDrafter(ToyTarget(draft, 6)), depth=3, width=width, eos_ids=())
    assert engine.generate([1], max_tokens=6, allowed=allowed).token_ids == [4] * 6


@pytest.mark.parametrize(
    "tree", [Tree((9, 3), (-1, 0)), Tree((1, 3, 4), (-1, 2, 0)), Tree((1, 3), (-1, 0), "sampled"), Tree((), ())]
)
def test_a_draft_that_is_no_tree_under_the_newest_token_is_dropped(tree):
    """Scored as it is, a wrong root would change the text without a word."""
    engine = toy_engine(LAW, lambda seq: tree, vocab_size=V, eos_ids=())
    with pytest.warns(RuntimeWarning, match="'scripted' is at fault: .*draft"):
        assert engine.generate([1], max_tokens=4).token_ids == alone([1], 4)


def test_drafts_that_found_no_room_give_it_back():
    """One sequence's reservation for a draft must not cost another its plain step."""
    target = ToyTarget(LAW, V, slots=59)
    engine = engine_of(target, ScriptedDrafter(lambda seq: [(alone(seq.tokens, 1)[0] + 1) % V] * 8))
    engine.controller = Fixed(Plan(8))
    long, short = engine.add([1] * 8, max_tokens=45), engine.add([2] * 8, max_tokens=20)
    run(engine, long, short)
    for request, prompt, count in ((long, [1] * 8, 45), (short, [2] * 8, 20)):
        result = engine.collect(request)
        assert result.token_ids == alone(prompt, count)
        assert result.stats.preempted == 0


def test_bytes_are_no_token_ids():
    with pytest.raises(SpecError, match="list of token ids"):
        engine_of().generate(b"abc")


def test_a_controller_is_told_of_every_prompt_token_that_is_read():
    """Also of those that are read in the step that decodes."""
    engine, loads = engine_of(), []
    plan = engine.controller.plan
    engine.controller.plan = lambda load: loads.append(load) or plan(load)
    engine.generate([1] * 9, max_tokens=2)
    assert [load.prefilling for load in loads][:2] == [8, 0]
