"""A part that is plugged in cannot hurt: drafters that say or raise anything, and hooks of one request."""

import itertools
import warnings

import numpy as np
import pytest
import torch

from forerun.core.draft import Draft, Tree
from forerun.core.errors import BrokenInvariant
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.seq import Seq
from forerun.drafters.first_of import FirstOf
from forerun.drafters.mixed import Mixed
from forerun.drafters.model import ModelDrafter, ModelOptions
from forerun.drafters.ngram import NgramDrafter
from forerun.testing.engines import Letters, toy_engine
from forerun.testing.scripted import ScriptedDrafter
from forerun.testing.toy import ToyTarget, table_law

V = 16
LAW = table_law(V, 1)
OTHER = table_law(V, 9, order=1)
ASKS = ({}, {"temperature": 0.7, "seed": 3}, {"temperature": 1.2, "top_p": 0.9, "frequency_penalty": 0.3, "seed": 4})


def DRAFT(tokens):
    """Nearly the target's law."""
    return LAW(tokens) + 0.2 * OTHER(tokens)


LAWS = ("chosen", "foreseen", "sampled", "distinct")
PROMPTS = ([1, 2], [5], [3, 4, 3])
SICK = 1
"""The place of the prompt whose drafts are at fault."""


def alone(prompt, ask=None, count=12):
    return toy_engine(LAW, vocab_size=V, eos_ids=()).generate(prompt, max_tokens=count, **ask or {}).token_ids


def served(drafter, ask=None, prompts=PROMPTS, width=1, match="at fault"):
    """Results of one batch, the drafter's one warning seen."""
    engine = toy_engine(ToyTarget(LAW, V), drafter, depth=3, width=width, vocab_size=V, eos_ids=())
    with pytest.warns(RuntimeWarning, match=match) as told:
        results = engine.generate_batch(prompts, max_tokens=12, **ask or {})
    assert len(told) == 1, "a drafter's faults are told once"
    assert engine.parts.target.free == engine.parts.target.slots
    assert not engine.busy
    return results


def sick_row(value):
    """The draft model's law, but for texts that begin as the sick prompt does."""

    def law(tokens):
        row = DRAFT(tokens)
        return torch.full_like(row, value) if tokens[0] == PROMPTS[SICK][0] else row

    return law


def some_nan(tokens):
    row = DRAFT(tokens).clone()
    if tokens[0] == PROMPTS[SICK][0] and len(tokens) % 2:
        row[3] = float("nan")
    return row


@pytest.mark.parametrize("width", [1, pytest.param(3, marks=pytest.mark.full)])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("row", [sick_row(float("nan")), sick_row(float("inf")), sick_row(float("-inf")), some_nan])
def test_201_a_row_that_is_not_finite_ends_that_guess_alone(row, law, width):
    for ask in ASKS:
        draft = ToyTarget(row, V)
        results = served(ModelDrafter(draft, ModelOptions(law=law)), ask, width=width)
        if law in ("chosen", "foreseen") or not ask:
            assert [r.token_ids for r in results] == [alone(prompt, ask) for prompt in PROMPTS]
        assert results[SICK].stats.dropped > 0
        assert row is not some_nan or results[SICK].stats.drafted > 0, "what is finite is drafted from all the same"
        for place in (0, 2):
            assert results[place].stats.dropped == 0
            assert results[place].stats.accepted > 0, "a healthy neighbour keeps its drafts"
        assert draft.free == draft.slots


def test_201_half_precision_that_overflows_is_not_finite():
    def law(tokens):
        return (DRAFT(tokens) * 1e6).half() if tokens[0] == PROMPTS[SICK][0] else DRAFT(tokens).half()

    results = served(ModelDrafter(ToyTarget(law, V), ModelOptions(law="sampled")), match="'model' is at fault")
    assert [r.token_ids for r in results] == [alone(prompt) for prompt in PROMPTS]


def drawn(change=lambda row: row, tokens=(3, 4), law="sampled"):
    """A guess that says it was drawn from rows that `change` makes of a distribution."""

    def tree(seq):
        row = torch.full((V,), 1 / V)
        return Tree.chain(seq.last, tokens, law, {node: change(row.clone()) for node in range(len(tokens))})

    return tree


def put(place, value):
    def change(row):
        row[place] = value
        return row

    return change


WRONG = {
    "NaN in q": drawn(put(7, float("nan"))),
    "inf in q": drawn(put(7, float("inf"))),
    "-inf in q": drawn(put(7, float("-inf"))),
    "a negative chance": drawn(put(7, -1 / V)),
    "a sum of 2": drawn(lambda row: row * 2),
    "a sum of 0.9": drawn(lambda row: row * 0.9),
    "a chance of 0 for what was drawn": drawn(lambda row: put(4, 2 / V)(put(3, 0.0)(row))),
    "a row of another size": drawn(lambda row: row[:-1]),
    "a row of two dimensions": drawn(lambda row: row[None]),
    "float16 rows": drawn(lambda row: row.half()),
    "a list for a row": drawn(lambda row: row.tolist()),
    "no rows": lambda seq: Tree.chain(seq.last, [3], "sampled"),
    "rows of integers": drawn(lambda row: row.long()),
    "twins that were drawn without replacement": lambda seq: Tree(
        (seq.last, 3, 3), (-1, 0, 0), "distinct", {0: torch.full((V,), 1 / V)}
    ),
    "an id past the vocabulary": lambda seq: [V],
    "a huge id": lambda seq: [1 << 70],
    "a negative id": lambda seq: [-1],
    "a drawn id past the vocabulary": drawn(tokens=(V,)),
    "a float for an id": lambda seq: [3.0],
    "None for an id": lambda seq: [None],
    "a text for an id": lambda seq: ["a"],
    "a tensor for an id": lambda seq: [torch.tensor(3)],
    "another root": lambda seq: Tree(((seq.last + 1) % V, 3), (-1, 0)),
    "no root": lambda seq: Tree((), ()),
    "a parent that comes later": lambda seq: Tree((seq.last, 3, 4), (-1, 2, 0)),
    "a parent that is none": lambda seq: Tree((seq.last, 3), (-1, -1)),
    "a parent past the end": lambda seq: Tree((seq.last, 3), (-1, 9)),
    "fewer parents than tokens": lambda seq: Tree((seq.last, 3, 4), (-1, 0)),
    "an unknown law": lambda seq: Tree.chain(seq.last, [3], "guessed"),
    "a law that was not declared": lambda seq: Tree.chain(seq.last, [3], "foreseen"),
    "more nodes than planned": lambda seq: Tree.chain(seq.last, [3] * 200),
    "a tree for a plan of chains": lambda seq: Tree((seq.last, 3, 4), (-1, 0, 0)),
}


class Anything(ScriptedDrafter):
    """Drafts what it is told, whatever that is."""

    laws = frozenset({"chosen", "sampled", "distinct"})

    def _tree(self, seq, plan):
        guess = self._guess(seq)
        return Tree.chain(seq.last, guess) if isinstance(guess, list) else guess


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("what", WRONG)
def test_201_what_cannot_be_a_guess_is_dropped(what, ask):
    right = lambda seq: alone(seq.tokens, count=min(2, seq.room)) if seq.room and not ask else []
    wrong = WRONG[what]
    drafter = Anything(lambda seq: wrong(seq) if seq.id == SICK else right(seq))
    results = served(drafter, ask, width=3 if what.startswith("twins") else 1, match="'scripted' is at fault: ")
    assert [r.token_ids for r in results] == [alone(prompt, ask) for prompt in PROMPTS]
    assert results[SICK].stats.dropped == results[SICK].stats.target_passes
    assert results[SICK].stats.drafted == 0
    if not ask:
        assert results[0].stats.accepted > 0
    assert not drafter.open


@pytest.mark.parametrize(
    "made",
    [
        None,
        [],
        Draft(()),
        "trees",
        Draft((None,) * 3),
        Draft((Tree.root(1),) * 4),
        Draft((1, "a", [])),
        Draft(tuple(np.zeros(3))),
    ],
)
def test_201_what_is_no_draft_at_all_is_dropped(made):
    class Odd(ScriptedDrafter):
        def draft(self, seqs, plan, noise):
            return made

    drafter = Odd(lambda seq: [])
    results = served(drafter)
    assert [r.token_ids for r in results] == [alone(prompt) for prompt in PROMPTS]
    assert all(r.stats.dropped for r in results)
    assert not drafter.open


class Raises:
    """A drafter that is right, but for what it raises in one method: for the sick sequence, or for any (`who`)."""

    taps = ()
    laws = frozenset({"chosen"})
    name = "raises"

    def __init__(self, where, who=SICK, times=10**6):
        self.where, self.who, self.left, self.open = where, who, times, set()

    def _may(self, where, seqs):
        for seq in seqs:
            assert where in ("begin", "end") or seq in self.open, "it is shown only what it knows"
            if where == self.where and seq.id in (self.who, seq.id if self.who is None else None) and self.left > 0:
                self.left -= 1
                raise ValueError(f"mine\nin {where}")

    def begin(self, seq):
        self._may("begin", [seq])
        self.open.add(seq)

    def read(self, rows):
        self._may("read", [item.seq for item in rows.items])

    def draft(self, seqs, plan, noise):
        self._may("draft", seqs)
        return Draft(
            tuple(Tree.chain(seq.last, alone(seq.tokens, count=min(2, seq.room)) if seq.room else []) for seq in seqs)
        )

    def accept(self, seqs, draft, rows, verdict):
        assert list(rows.items[: len(seqs)]) == [item for item in rows.items if item.seq in seqs]
        for b, item in enumerate(rows.items[: len(seqs)]):
            assert item.seq is seqs[b]
            assert item.nodes == draft.trees[b]
            assert rows.argmax(b, 0) is not None
        self._may("accept", seqs)

    def end(self, seq):
        self.open.discard(seq)
        self._may("end", [seq])


class Tapped(Raises):
    taps = (0,)

    def recall(self, seq, held):
        self._may("recall", [])
        return held

    def accept(self, seqs, draft, rows, verdict):
        super().accept(seqs, draft, rows, verdict)
        assert len(rows.hidden) == sum(item.stop - item.start + item.fresh for item in rows.items)
        at = 0
        for item in rows.items:  # the toy's state of a token is its one-hot vector
            fed = [*item.certain, *item.nodes.tokens]
            assert rows.hidden[at : at + len(fed)].argmax(-1).tolist() == fed
            at += len(fed)


@pytest.mark.parametrize("times", [1, 10**6])
@pytest.mark.parametrize("who", [SICK, None])
@pytest.mark.parametrize("where", ["begin", "draft", "accept", "end"])
def test_201_a_drafter_may_raise_anywhere(where, who, times):
    drafter = Raises(where, who, times)
    results = served(drafter, match="'raises' is at fault: ValueError: mine in")
    assert [r.token_ids for r in results] == [alone(prompt) for prompt in PROMPTS]
    if who is not None:
        assert all(r.stats.accepted > 0 for r in (results[0], results[2])), "healthy neighbours keep their drafts"
        once_alone = (where, times) == ("draft", 1)  # asked again alone, it answered
        assert where == "end" or once_alone or results[SICK].stats.dropped > 0
    assert not drafter.open


@pytest.mark.parametrize("where", ["begin", "read", "draft", "accept"])
def test_201_a_drafter_with_taps_may_raise_anywhere(where):
    drafter = Tapped(where)
    engine = toy_engine(ToyTarget(LAW, V, layers=2), drafter, depth=3, vocab_size=V, eos_ids=(), chunk=2)
    with pytest.warns(RuntimeWarning, match="'raises' is at fault"):
        results = engine.generate_batch(PROMPTS * 2, max_tokens=12)
    assert [r.token_ids for r in results] == [alone(prompt) for prompt in PROMPTS * 2]
    assert not drafter.open


@pytest.mark.parametrize("said", [-1, 10**6, None, "all", 2.5])
def test_201_a_drafter_may_recall_nonsense(models, said):
    from dataclasses import replace

    import forerun
    from forerun.control.fixed import Fixed

    class Odd(Tapped):
        def recall(self, seq, held):
            return said

        def draft(self, seqs, plan, noise):
            return Draft.roots(seq.last for seq in seqs)

        def accept(self, seqs, draft, rows, verdict):
            pass

    with forerun.load(str(models["folder"]), runtime="torch") as engine:
        prompt = list(range(97, 117)) * 3
        text = engine.generate(prompt, max_tokens=6).token_ids
        odd = forerun.Engine(replace(engine.parts, drafter=Odd("nowhere")), Fixed(Plan(2)))
        with pytest.warns(RuntimeWarning, match="at fault"):
            assert odd.generate(prompt, max_tokens=6).token_ids == text


def test_201_the_next_request_has_its_drafts_again():
    engine = toy_engine(LAW, Raises("draft", None, times=1), depth=3, vocab_size=V, eos_ids=())
    with pytest.warns(RuntimeWarning, match="at fault"):
        assert engine.generate([1], max_tokens=8).stats.accepted == 0
    assert engine.generate([1], max_tokens=8).stats.accepted > 0


def test_201_one_part_of_a_cascade_that_fails():
    model = ModelDrafter(ToyTarget(sick_row(float("nan")), V))
    for made in (FirstOf([NgramDrafter(), model]), Mixed([NgramDrafter(), model]), FirstOf([Raises("draft"), model])):
        results = served(made)
        assert [r.token_ids for r in results] == [alone(prompt) for prompt in PROMPTS]
        assert not model._open


def test_201_a_step_s_trace_says_what_was_dropped():
    engine, steps = toy_engine(LAW, Anything(WRONG["NaN in q"]), depth=3, vocab_size=V, eos_ids=()), []
    engine.controller.observe = steps.append
    with pytest.warns(RuntimeWarning):
        result = engine.generate([1], max_tokens=5)
    said = "a draft's row is no distribution: its smallest value is nan, its sum nan"
    assert [step.dropped for step in steps[:3]] == [(said,)] * 3
    assert result.stats.dropped == 5


def test_201_a_warning_that_is_an_error_loses_nothing():
    engine = toy_engine(LAW, Anything(WRONG["NaN in q"]), depth=3, vocab_size=V, eos_ids=())
    request, told = engine.add([1], max_tokens=6), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="at fault"):
            engine.step()
        while not engine.finished(request):
            told += [token.id for event in engine.step() for token in event.tokens]
    assert told == engine.collect(request).token_ids == alone([1], count=6)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_201_a_target_s_own_fault_ends_that_request_by_its_name(temperature):
    def law(tokens):
        row = LAW(tokens)
        return torch.full_like(row, float("nan")) if tokens[0] == PROMPTS[SICK][0] and len(tokens) > 4 else row

    engine = toy_engine(ToyTarget(law, V), Raises("nowhere"), depth=3, vocab_size=V, eos_ids=())
    requests = [engine.add(prompt, max_tokens=12, temperature=temperature, seed=2) for prompt in PROMPTS]
    while not all(map(engine.finished, requests)):
        engine.step()
    for place in (0, 2):
        text = alone(PROMPTS[place], {"temperature": temperature, "seed": 2})
        assert engine.collect(requests[place]).token_ids == text
    with pytest.raises(BrokenInvariant, match="logits"):
        engine.collect(requests[SICK])
    assert engine.parts.target.free == engine.parts.target.slots


class Mine(Exception):
    """Raised by a caller's hook."""


def fails_at(length):
    def allowed(tokens):
        if len(tokens) >= length:
            raise Mine
        return list(range(V))

    return allowed


class Hoarse:
    """A decoder that fails when its answer has so many tokens, or when it is asked."""

    def __init__(self, where, count=3):
        self.where, self.count, self.heard = where, count, 0

    def hear(self, token):
        self.heard += 1
        return self._may("hear", False)

    def take(self):
        return self._may("take", "")

    def finish(self):
        return self._may("finish", "")

    def _may(self, where, value):
        if where == self.where and self.heard >= self.count:
            raise Mine
        return value


class HoarseWords(Letters):
    """Words whose second listener is hoarse."""

    def __init__(self, where):
        super().__init__([bytes([65 + i]) for i in range(V)])
        self.where, self.asked = where, set()

    def listen(self, stops, prompt=()):
        return Hoarse(self.where) if stops else super().listen(stops, prompt)


DRAFTERS = {
    "none": lambda law: None,
    "model": lambda law: ModelDrafter(ToyTarget(DRAFT, V), ModelOptions(law=law)),
    "mixed": lambda law: Mixed([NgramDrafter(), ModelDrafter(ToyTarget(DRAFT, V), ModelOptions(law=law))]),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("hook", ["mask", "hear", "take", "finish", "mask of another size", "mask of texts"])
def test_202_a_hook_s_fault_ends_its_own_request(hook, kind, law):
    own = {
        "mask": {"allowed": fails_at(3)},
        "mask of another size": {"allowed": lambda tokens: torch.ones(V - len(tokens) // 3, dtype=torch.bool)},
        "mask of texts": {"allowed": lambda tokens: ["a"] if len(tokens) > 2 else None},
    }.get(hook, {"stop": "ZZ"})
    words = None if "mask" in hook else HoarseWords(hook)
    engine = toy_engine(ToyTarget(LAW, V), DRAFTERS[kind](law), depth=3, vocab_size=V, eos_ids=(), words=words)
    for ask in ASKS[:2]:
        requests = [
            engine.add(prompt, max_tokens=12, **ask, **(own if place == SICK else {}))
            for place, prompt in enumerate(PROMPTS)
        ]
        reasons = {}
        for _ in range(100):
            for event in engine.step():
                reasons[event.request_id] = event.finish_reason
        assert reasons[requests[SICK]] == "error"
        for place in (0, 2):
            found = engine.collect(requests[place]).token_ids
            if law in ("chosen", "foreseen") or not ask:
                assert found == alone(PROMPTS[place], ask)
        with pytest.raises((Mine, ValueError)):
            engine.collect(requests[SICK])
        assert not engine.busy
        assert engine.parts.target.free == engine.parts.target.slots


def test_202_a_verifier_that_fails_over_one_answer():
    from forerun.verify.match import Match

    class Picky(Match):
        def __call__(self, draft, rows, noise):
            if any(item.seq.id == SICK and len(item.seq.output) > 2 for item in rows.items):
                raise Mine
            return super().__call__(draft, rows, noise)

    engine = toy_engine(ToyTarget(LAW, V), Raises("nowhere"), depth=3, vocab_size=V, eos_ids=(), verify=Picky())
    requests = [engine.add(prompt, max_tokens=12) for prompt in PROMPTS]
    while not all(map(engine.finished, requests)):
        engine.step()
    with pytest.raises(Mine):
        engine.collect(requests[SICK])
    assert [engine.collect(requests[place]).token_ids for place in (0, 2)] == [alone(PROMPTS[p]) for p in (0, 2)]


def test_202_a_stream_is_told_of_its_own_failure_only():
    engine = toy_engine(ToyTarget(LAW, V), DRAFTERS["model"]("foreseen"), depth=3, vocab_size=V, eos_ids=())
    streams = [
        engine.stream(p, max_tokens=12, **({"allowed": fails_at(3)} if i == SICK else {}))
        for i, p in enumerate(PROMPTS)
    ]
    got = [[], [], []]
    for _ in itertools.repeat(None, 20):
        for place, stream in enumerate(streams):
            try:
                if (event := next(stream, None)) is not None:
                    got[place] += [token.id for token in event.tokens]
            except Mine:
                assert place == SICK
                got[place].append("mine")
    assert (got[0], got[2]) == (alone(PROMPTS[0]), alone(PROMPTS[2]))
    assert got[SICK][-1] == "mine"
    assert not engine.busy


def test_a_sequence_says_what_was_dropped_of_it_once_a_step():
    seq = Seq(0, [1], SamplingParams(), 8)
    seq.drop("one")
    seq.drop("two")
    assert seq.fault == "one"
