"""Interruptions between any two lines of a step, and hooks that raise in any phase: nothing is lost and nothing leaks.

A trace function raises at one line of forerun's own files while a batch of four is served, memory so short that
sequences are preempted. Whatever was called is called again; then texts, blocks and slots must be as if nothing had
happened.
"""

import random
import sys
from collections import Counter
from functools import cache
from itertools import count
from pathlib import Path

import pytest

import forerun
from forerun.drafters.eagle import Eagle3Drafter
from forerun.drafters.medusa import MedusaDrafter
from forerun.drafters.mixed import Mixed
from forerun.drafters.model import ModelDrafter, ModelOptions
from forerun.drafters.ngram import NgramDrafter, NgramOptions
from forerun.drafters.suffix import SuffixDrafter
from forerun.models.heads.plain import TorchMedusa, TorchRecurrent
from forerun.testing.engines import Letters, toy_engine
from forerun.testing.heads import random_config, random_head

HOME = str(Path(forerun.__file__).parent)
OWN = tuple(
    f"{HOME}/{room}/" for room in ("engine", "core", "drafters", "targets", "cache", "verify", "text", "control")
)
WORDS = Letters([bytes([65 + i]) for i in range(32)])
PROMPTS = ([1, 2, 3, 4] * 9, [*[1, 2, 3, 4] * 9, 7], [5, 6, 5, 6, 5], [9] * 20)
DRAFTERS = ("model", "eagle3", "medusa", "ngram", "suffix", "mixed")


class Interrupted(KeyboardInterrupt):
    pass


class At:
    """Raises at the `nth` line of ours that is run (None: never), and counts where lines were run."""

    def __init__(self, nth=None):
        self.nth, self.run, self.lines = nth, 0, []

    def __enter__(self):
        sys.settrace(self)
        return self

    def __exit__(self, *error):
        sys.settrace(None)

    def __call__(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(OWN):
            return None
        if event == "line":
            if self.nth is None:
                self.lines.append((frame.f_code.co_filename, frame.f_lineno))
            elif self.run == self.nth:
                self.run += 1
                raise Interrupted(f"{frame.f_code.co_filename}:{frame.f_lineno}")
            self.run += 1
        return self


def drafter_of(kind, transformer, target):
    """A drafter, and what it holds of sequences that are open."""
    if kind in ("eagle3", "medusa"):
        network = transformer.network
        head = random_head(random_config(kind, 32, 16), seed=3)
        if kind == "medusa":
            made = MedusaDrafter(TorchMedusa(head, network.end_rows()), MedusaDrafter.Options(), vocab=32, layers=2)
            return made, lambda: len(made._latest)
        runner = TorchRecurrent(head, network.embedding, network.end_rows())
        made = Eagle3Drafter(runner, Eagle3Drafter.Options(chunk=8), vocab=32, layers=2, kv_tokens=160)
        return made, lambda: len(made._slots._open) + made._slots.pool.usage.used
    if kind == "suffix":
        made = SuffixDrafter()
        return made, lambda: len(made._readings)
    lookup = NgramDrafter(NgramOptions(min=1))
    if kind == "ngram":
        return lookup, lambda: len(lookup._readings)
    model = ModelDrafter(transformer.target(kv_tokens=320), ModelOptions(chunk=8))
    draft = model.target
    holds = lambda: len(model._open) + len(model._grown) + len(draft._open) + draft.usage.used
    if kind == "model":
        return model, holds
    made = Mixed([lookup, model])
    return made, lambda: holds() + len(made._worth) + len(made._asked) + len(lookup._readings)


class Scene:
    """An engine whose memory is too small for its batch."""

    def __init__(self, kind, transformer, hook=None):
        self.target = transformer.target(kv_tokens=128, max_len=96)
        self.drafter, self.holds = drafter_of(kind, transformer, self.target)
        self.engine = toy_engine(self.target, self.drafter, depth=3, eos_ids=(0,), words=WORDS, chunk=24)
        self.hook = hook or (lambda tokens: None)

    def play(self):
        """Four requests, one of two answers, and one that is cancelled; what came of the four, and what was told."""
        engine = self.engine
        asks = [{}, {"temperature": 2.0, "seed": 5, "n": 2}, {"stop": ["HI", "KL"]}, {"allowed": self.hook}]
        requests = [
            again(engine.add, prompt, max_tokens=10, ignore_eos=True, **ask)
            for prompt, ask in zip(PROMPTS, asks, strict=True)
        ]
        told = Counter()
        other = again(engine.add, [3] * 12, max_tokens=40, ignore_eos=True)
        for step in count():
            assert step < 500, "requests that never end"
            for event in again(engine.step):
                told[event.request_id, event.index] += len(event.tokens)
            if step == 4:
                again(engine.cancel, other)
            if all(again(engine.finished, request) for request in requests):
                break
        results = []
        for request in requests:
            try:
                results.append(again(engine.collect, request))
            except Mine:
                results.append(None)
        return results, told

    def check(self):
        """Nothing is left behind."""
        engine, pool = self.engine, self.target.pool
        assert not engine.busy
        assert not engine._scheduler.busy
        assert not self.target._open
        assert (self.holds(), pool.usage.used) == (0, 0)
        pool.check_integrity()
        assert not engine._guard._open


class Mine(Exception):
    pass


def texts_of(results, told):
    """What the answers say, each told once."""
    for result in filter(None, results):
        for choice in result.choices:
            assert told[result.request_id, choice.index] == len(choice.tokens), "tokens were told twice or never"
            assert choice.stats.emitted == len(choice.tokens)
    return [r and [(c.text, c.token_ids, c.finish_reason) for c in r.choices] for r in results]


def again(call, *args, **named):
    """What comes of it, called again if it is interrupted."""
    try:
        return call(*args, **named)
    except Interrupted:
        return call(*args, **named)


@cache
def undisturbed(kind, transformer):
    """The texts, and the lines that were run for them."""
    scene = Scene(kind, transformer)
    with At() as at:
        played = scene.play()
    scene.check()
    return texts_of(*played), at.lines


def interrupt(kind, transformer, nths):
    for nth in nths:
        scene = Scene(kind, transformer)
        with At(nth) as at:
            played = scene.play()
        assert at.run > nth, "nothing was interrupted"
        assert texts_of(*played) == undisturbed(kind, transformer)[0], f"interrupted at line {nth} of the run"
        scene.check()


@pytest.fixture
def ours(_transformers):
    return _transformers("torch")


@pytest.mark.parametrize("kind", DRAFTERS)
def test_264_an_interruption_at_any_line_leaves_nothing_behind(kind, ours):
    _, lines = undisturbed(kind, ours)
    interrupt(kind, ours, random.Random(kind).sample(range(len(lines)), 3))


@pytest.mark.full
@pytest.mark.parametrize("kind", DRAFTERS)
def test_264_two_hundred_interruptions_leave_nothing_behind(kind, ours):
    """Of each drafter 34 lines of the code, each interrupted at one of the times when it is run."""
    _, lines = undisturbed(kind, ours)
    rng, times = random.Random(f"{kind} in full"), {}
    for nth, line in enumerate(lines):
        times.setdefault(line, []).append(nth)
    interrupt(kind, ours, [rng.choice(times[line]) for line in rng.sample(sorted(times), 34)])


def test_264_memory_was_short_in_all_this(ours):
    """Or preemption would not have been interrupted."""
    ran = {line for kind in DRAFTERS for line in undisturbed(kind, ours)[1]}
    text = (Path(HOME) / "engine" / "scheduler.py").read_text().splitlines()
    number = next(i for i, line in enumerate(text, start=1) if "stats.preempted += 1" in line)
    assert (f"{HOME}/engine/scheduler.py", number) in ran


class Breaks:
    """A mask hook that raises at its `nth` call."""

    def __init__(self, nth):
        self.nth, self.calls = nth, 0

    def __call__(self, tokens):
        self.calls += 1
        if self.calls - 1 == self.nth:
            raise Mine
        return None


def break_hooks(kind, transformer, rng, count):
    calls = Breaks(None)
    scene = Scene(kind, transformer, calls)
    texts = texts_of(*scene.play())
    for _ in range(count):
        hook = Breaks(rng.randrange(calls.calls))
        scene = Scene(kind, transformer, hook)
        found = texts_of(*scene.play())
        assert found == [*texts[:-1], None], f"raised at call {hook.nth} of {calls.calls}"
        scene.check()


@pytest.mark.parametrize("kind", DRAFTERS)
def test_202_a_hook_that_raises_at_any_call_ends_its_own_request(kind, ours):
    break_hooks(kind, ours, random.Random(kind), 3)


@pytest.mark.full
@pytest.mark.parametrize("kind", DRAFTERS)
def test_202_two_hundred_hooks_that_raise_leave_nothing_behind(kind, ours):
    break_hooks(kind, ours, random.Random(f"{kind} in full"), 34)
