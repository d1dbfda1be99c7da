"""Batches, memory, cancellation, seeds and results, on toys."""

import itertools
import random

import pytest
import torch

from forerun.control.fixed import Fixed
from forerun.core.errors import CapacityError, SpecError
from forerun.core.plan import Load, Plan
from forerun.testing.engines import Letters, scripted, toy_engine
from forerun.testing.scripted import ScriptedDrafter, always
from forerun.testing.toy import ToyTarget, fixed_law, table_law

V = 16
GUESSES = {
    "nothing": lambda seq: [],
    "always the same": always([3, 1, 4, 1, 5]),
    "the target's own": lambda seq: greedy_chain(seq.tokens, 5),
}


LAW = table_law(V, 1)


def greedy_chain(tokens, k):
    tokens = list(tokens)
    for _ in range(k):
        tokens.append(int(LAW(tokens).argmax()))
    return tokens[-k:]


class EveryStepAnother:
    """A controller whose plan changes at each step, to nothing and back."""

    def __init__(self):
        self._depths = itertools.cycle([3, 0, 1, 8, 0, 2])

    def plan(self, load):
        return Plan(next(self._depths))

    def observe(self, step):
        assert len(step.sizes) == len(step.accepted) == len(step.emitted)


def answers(guess, prompts, controller=None, slots=1 << 20, chunk=512, **params):
    target = ToyTarget(table_law(V, 1), V, slots=slots)
    drafter = None if guess is None else ScriptedDrafter(guess)
    engine = toy_engine(target, drafter, vocab_size=V, eos_ids=(), controller=controller, chunk=chunk)
    results = engine.generate_batch(prompts, max_tokens=24, **params)
    assert target.free == target.slots
    assert not engine.busy
    assert drafter is None or not drafter.open
    return [result.token_ids for result in results], results


PROMPTS = [[1], [2, 3, 4], [5] * 7, list(range(12))]


@pytest.mark.parametrize("guess", GUESSES)
@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "seed": 7}, {"temperature": 0.7, "top_p": 0.8, "seed": 7}])
def test_79_80_a_batch_says_what_each_would_say_alone(guess, params):
    together, _ = answers(GUESSES[guess], PROMPTS, **params)
    for prompt, ids in zip(PROMPTS, together, strict=True):
        assert answers(None, [prompt], **params)[0] == [ids]


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "seed": 7}])
def test_a_plan_that_changes_every_step_changes_nothing_else(params):
    plain, _ = answers(None, PROMPTS, **params)
    drafted, results = answers(GUESSES["the target's own"], PROMPTS, EveryStepAnother(), **params)
    assert drafted == plain
    assert any(result.stats.accepted for result in results)


@pytest.mark.parametrize("chunk", [1, 3, 512])
def test_prompts_read_in_chunks_give_the_same(chunk):
    assert answers(GUESSES["always the same"], PROMPTS, chunk=chunk)[0] == answers(None, PROMPTS)[0]


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "seed": 7}])
def test_preemption_happens_and_changes_nothing(params):
    plain, _ = answers(None, PROMPTS, **params)
    drafted, results = answers(GUESSES["the target's own"], PROMPTS, slots=64, **params)
    assert drafted == plain
    assert sum(result.stats.preempted for result in results) > 0


def test_memory_too_small_for_one_is_said_with_numbers():
    with pytest.raises(CapacityError, match="kv_tokens"):
        answers(None, [[1, 2, 3]], slots=8)


def test_18_a_seed_is_the_request_s_own():
    flat = fixed_law([1 / 50] * 50)

    def run(seed, others=0, before=0):
        engine = toy_engine(flat, always([3, 1, 4]), depth=3, vocab_size=50, eos_ids=())
        for i in range(before):
            engine.generate([i % 50], temperature=1.0, max_tokens=3)
        request = engine.add([9], temperature=1.0, seed=seed, max_tokens=20)
        rest = [engine.add([i], temperature=1.0, max_tokens=20) for i in range(others)]
        while engine.busy and not all(map(engine.finished, [request, *rest])):
            engine.step()
        return engine.collect(request).token_ids

    alone = run(7)
    assert run(7, before=100) == alone
    assert run(7, others=3) == alone
    assert run(8) != alone


def test_unseeded_requests_differ():
    engine = toy_engine(fixed_law([1 / 50] * 50), vocab_size=50, eos_ids=())
    first, second = (engine.generate([1], temperature=1.0, max_tokens=20).token_ids for _ in range(2))
    assert first != second


def test_several_answers_to_one_request_are_independent_and_repeatable():
    def run(n):
        engine = toy_engine(table_law(V, 1), always([3]), vocab_size=V, eos_ids=())
        return engine.generate([1, 2], temperature=1.0, seed=5, n=n, max_tokens=12)

    three = run(3)
    texts = [tuple(choice.token_ids) for choice in three.choices]
    assert len(set(texts)) == 3
    assert [choice.index for choice in three.choices] == [0, 1, 2]
    assert three.usage.completion_tokens == 36
    assert run(1).token_ids == list(texts[0])


def test_85_rows_of_a_batch_keep_to_their_own_ids():
    def law(tokens):
        decade = tokens[0]
        row = torch.full((50,), -torch.inf, dtype=torch.float64)
        row[10 * decade] = torch.tensor(0.9).log()
        row[10 * decade + 1 : 10 * decade + 10] = torch.tensor(0.1 / 9).log()
        return row

    for size in range(1, 6):
        engine = toy_engine(law, lambda seq: [10 * seq.tokens[0]] * 3, depth=3, vocab_size=50, eos_ids=())
        results = engine.generate_batch([[r] for r in range(size)], temperature=1.0, max_tokens=40)
        for r, result in enumerate(results):
            assert all(10 * r <= token < 10 * r + 10 for token in result.token_ids)


def test_83_84_cancelling_frees_everything_at_once():
    target = ToyTarget(table_law(V, 1), V)
    drafter = ScriptedDrafter(always([1]))
    engine = toy_engine(target, drafter, vocab_size=V, eos_ids=(), max_batch=1)
    for _ in range(50):
        running = engine.add([1, 2, 3], max_tokens=500)
        queued = engine.add([4] * 9, max_tokens=500)
        engine.step()
        assert engine.cancel(queued).finish_reason == "cancelled"
        result = engine.cancel(running)
        assert result.finish_reason == "cancelled"
        assert len(result.token_ids) >= 1
        assert target.free == target.slots
        assert not drafter.open
        assert not engine.busy
    assert {token for _, token, _ in target.fed if token == 4} == set()


def test_leaving_a_stream_early_cancels_it():
    engine = scripted(list(range(20, 60)), [20, 21])
    for event in engine.stream([1]):
        assert event.tokens
        break
    assert not engine.busy
    assert engine.parts.target.free == engine.parts.target.slots


def test_a_stream_that_never_starts_costs_nothing():
    engine = scripted([5])
    engine.stream([1])
    assert not engine.busy
    with pytest.raises(SpecError):
        engine.stream([99])


def test_two_streams_share_the_engine():
    engine = toy_engine(table_law(V, 1), always([3]), vocab_size=V, eos_ids=())
    alone = [
        toy_engine(table_law(V, 1), vocab_size=V, eos_ids=()).generate([p], max_tokens=9).token_ids for p in (1, 2)
    ]
    got = [[], []]
    streams = [engine.stream([p], max_tokens=9) for p in (1, 2)]
    for events in itertools.zip_longest(*streams):
        for ids, event in zip(got, events, strict=True):
            if event is not None:
                ids.extend(token.id for token in event.tokens)
    assert got == alone


def test_a_refused_prompt_of_a_batch_leaves_nothing_behind():
    engine = scripted([5, 6])
    with pytest.raises(SpecError):
        engine.generate_batch([[1], [99]])
    assert not engine.busy
    assert engine.generate([1], max_tokens=2).token_ids == [5, 6]


def test_a_fault_in_a_hook_leaves_the_engine_usable():
    engine = scripted([5, 6])

    def broken(tokens):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        engine.generate([1], allowed=broken)
    assert not engine.busy
    assert engine.generate([1], max_tokens=2).token_ids == [5, 6]


def test_collecting_twice_or_too_early_is_refused():
    engine = scripted([5, 6])
    request = engine.add([1], max_tokens=1)
    with pytest.raises(SpecError, match="still running"):
        engine.collect(request)
    engine.step()
    engine.collect(request)
    with pytest.raises(SpecError, match="not known"):
        engine.collect(request)


def test_105_no_draft_is_asked_for_above_the_batch_limit():
    drafter = ScriptedDrafter(always([1, 1]))
    engine = toy_engine(table_law(V, 1), drafter, vocab_size=V, eos_ids=(), controller=Fixed(Plan(4), up_to=4))
    engine.generate_batch([[i] for i in range(5)], max_tokens=10)
    assert drafter.calls == 0
    engine.generate_batch([[i] for i in range(4)], max_tokens=10)
    assert drafter.calls > 0
    assert Fixed(Plan(4), up_to=4).plan(Load(5, 0, 0, 1)) == Plan.none()


def test_sequences_share_the_rows_of_a_forward():
    plan = Plan(5, nodes=11, width=4)
    shared = Fixed(plan, rows=8)
    nodes = {running: shared.plan(Load(running, 0, 0, 1)).nodes for running in (1, 2, 3, 4, 5, 12, 40)}
    assert nodes == {1: 11, 2: 3, 3: 1, 4: 1, 5: 0, 12: 0, 40: 0}
    assert not shared.plan(Load(5, 0, 0, 1))
    assert shared.plan(Load(1, 0, 0, 1)) is plan
    with pytest.raises(SpecError, match="rows must be"):
        Fixed(plan, rows=-1)
    most = []

    class Counted(ScriptedDrafter):
        def draft(self, seqs, plan, noise):
            found = super().draft(seqs, plan, noise)
            most.append((len(seqs), sum(tree.drafted + 1 for tree in found.trees)))
            return found

    drafter = Counted(always([1, 1, 1, 1, 1]))
    engine = toy_engine(table_law(V, 1), drafter, vocab_size=V, eos_ids=(), controller=Fixed(Plan(5), rows=6))
    for batch in (1, 2, 3, 4):
        engine.generate_batch([[i] for i in range(batch)], max_tokens=10)
    assert {count for count, _ in most} >= {1, 2, 3}
    assert max(rows for _, rows in most) == 6


def test_112_free_memory_is_what_it_was_after_every_ending():
    rng = random.Random(0)
    target = ToyTarget(table_law(V, 1), V)
    words = Letters([bytes([97 + i]) for i in range(V)])
    engine = toy_engine(target, always([1, 2, 3, 4, 5]), depth=5, vocab_size=V, eos_ids=(3,), words=words)
    for i in range(200):
        params = [{"max_tokens": 5}, {"max_tokens": 40}, {"stop": "a", "max_tokens": 20}][i % 3]
        request = engine.add([rng.randrange(V) for _ in range(1 + i % 9)], temperature=1.0, **params)
        for _ in range(rng.randrange(4) if i % 5 == 0 else 1000):
            if engine.finished(request):
                break
            engine.step()
        engine.cancel(request)
        assert target.free == target.slots


def test_requests_join_a_running_batch():
    engine = toy_engine(table_law(V, 1), always([3, 1]), vocab_size=V, eos_ids=())
    late = {}
    first = engine.add([1], max_tokens=30)
    for step in range(60):
        if step in (3, 5):
            late[engine.add([step, 2], max_tokens=10)] = [step, 2]
        engine.step()
    for request, prompt in late.items():
        alone = toy_engine(table_law(V, 1), vocab_size=V, eos_ids=()).generate(prompt, max_tokens=10)
        assert engine.collect(request).token_ids == alone.token_ids
    assert len(engine.collect(first).token_ids) == 30


def test_101_rates_pool_counts():
    from forerun.core.seq import SeqStats

    pooled = SeqStats()
    for drafted, accepted in [(10, 1)] * 7 + [(1000, 900)] + [(0, 0)] * 2:
        pooled.drafted += drafted
        pooled.accepted += accepted
    assert pooled.acceptance == pytest.approx(907 / 1070)


def test_one_text_is_not_a_batch_of_letters():
    with pytest.raises(SpecError, match="generate answers a single one"):
        scripted([5]).generate_batch("ab")


def test_a_step_tells_what_was_drafted_for_whom_and_where():
    told = []

    class Listens(Fixed):
        def observe(self, step):
            told.append(step)

    target = ToyTarget(table_law(V, 1), V)
    drafter = ScriptedDrafter(lambda seq: greedy_chain(seq.tokens, 3))
    engine = toy_engine(target, drafter, vocab_size=V, eos_ids=(), controller=Listens(Plan(3)))
    results = engine.generate_batch([[1], [2, 3, 4]], max_tokens=9)
    for answer, prompt in enumerate(([1], [2, 3, 4])):
        said, mine = [], [(step, step.answers.index((answer, 0))) for step in told if (answer, 0) in step.answers]
        for step, i in mine:
            assert step.lengths[i] == len(prompt) + len(said)
            tree, path = step.draft.trees[i], step.verdict.paths[i]
            assert len(tree) == step.sizes[i]
            said += [*(tree.tokens[node] for node in path), step.verdict.bonus[i]][: step.emitted[i]]
        assert said == results[answer].token_ids
