"""What is watched is what happened: the answer as unwatched, the target's own probabilities, every guess's fate."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from forerun.assemble import Config
from forerun.control.fixed import Fixed
from forerun.core.draft import Draft, Tree, Verdict
from forerun.core.errors import SpecError
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.protocols import StepTrace
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.lab.bench import Bench
from forerun.lab.trace.record import record, watched
from forerun.lab.trace.story import BELOW, DROPPED, END, REFUSED, STOOD, fate, kept, told
from forerun.lab.trace.watch import Seen, looks
from forerun.testing.scripted import ScriptedDrafter

GREEDY = {"max_tokens": 24, "ignore_eos": True}
SAMPLED = {**GREEDY, "temperature": 0.8, "top_p": 0.9, "seed": 5}
SPECS = ("ngram", "suffix:width=3,nodes=8,factor=2", "skip:layers=1,depth=3,width=2,nodes=6", "none")
TOKEN, PARENT, CHANCE, CONFIDENCE, ENTROPY, FATE = range(6)


@pytest.fixture
def prompt(bench):
    return bench.base.words.encode("one two three one two three one", bos=False)


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("spec", SPECS)
def test_watching_changes_nothing_and_misses_nothing(bench, prompt, spec, params):
    unwatched = bench.arm(spec).answer([prompt], params)
    found = record(bench, spec, prompt, params)
    assert found.sample.digest == unwatched.digest
    story, s = found.story, found.sample
    assert "".join(piece for piece, *_ in story["words"]) == found.text == unwatched.texts[0]
    assert len(story["steps"]) == s.passes
    fates = Counter(node[FATE] for step in story["steps"] for node in step["nodes"][1:])
    assert fates[STOOD] == s.accepted == sum(step["stood"] for step in story["steps"])
    assert s.drafted == sum(step["guessed"] for step in story["steps"])
    assert sum(fates.values()) - fates[DROPPED] == s.drafted
    assert sum(drafted for *_, drafted in story["words"]) == s.accepted
    assert sum(step["gain"] for step in story["steps"]) == s.emitted == len(story["words"])
    assert story["steps"][0]["read"] == len(prompt) - 1
    assert all(0.0 <= p <= 1.0 for step in story["steps"] for *_, p in _chances(step))


def _chances(step):
    yield from ((step["bonus"],) if step["bonus"] else ())
    yield from ((node[TOKEN], node[CHANCE]) for node in step["nodes"][1:] if node[FATE] != DROPPED)
    for row in step["rows"].values():
        yield from row


def test_a_drafter_with_probabilities_says_what_it_thinks(bench, prompt):
    found = record(bench, "skip:layers=1,depth=3", prompt, GREEDY)
    nodes = [node for step in found.story["steps"] for node in step["nodes"][1:]]
    assert all(0.0 <= node[CONFIDENCE] <= 1.0 and node[ENTROPY] >= 0.0 for node in nodes)
    steps = record(bench, "ngram", prompt, GREEDY).story["steps"]
    assert {tuple(node[CONFIDENCE:FATE]) for step in steps for node in step["nodes"]} == {(None, None)}


def test_probabilities_are_the_targets(bench, prompt):
    """Greedy: softmax of the row; sampled: the row that is drawn from."""
    target = bench.target
    for params in (SamplingParams(), SamplingParams(temperature=0.7, top_k=5)):
        seq = Seq(0, prompt, params, 200)
        target.begin(seq)
        target.reserve(seq, 40)
        tree = Tree((seq.last, 5, 6, 7), (-1, 0, 0, 1))
        rows = target.score([Item(seq, target.held(seq), len(seq) - 1, tree)])
        found = looks(tree, (1,), 9, rows)
        row = torch.softmax(rows.raw(0, 0), -1) if params.greedy else rows.probs(0, 0)
        assert found[0].chances == pytest.approx({5: float(row[5]), 6: float(row[6])})
        assert found[0].likeliest[0] == pytest.approx((int(row.argmax()), float(row.max())))
        assert set(found) == {0, 1}
        assert set(found[1].chances) == {7, 9}
        target.release(seq)


def scripted(bench, guess):
    """An arm whose guesses are told."""
    arm = bench.arm("none")
    arm.engine.parts = replace(arm.engine.parts, drafter=ScriptedDrafter(guess))
    arm.engine.controller = Fixed(Plan(8, width=4))
    return arm


def two(seq):
    """Two siblings, but at the end of the answer, where there is no room for them."""
    return Tree((seq.last, 65, 66), (-1, 0, 0)) if len(seq.output) < 20 else []


def test_a_greedy_refusal_met_a_likelier_token(bench, prompt):
    _, notes = watched(scripted(bench, two), prompt, GREEDY)
    story = told(notes.steps, bench.base.words, ())
    refused = 0
    for step in story["steps"]:
        for node in step["nodes"][1:]:
            if node[FATE] == REFUSED:
                refused += 1
                token, chance = step["rows"][node[PARENT]][0]
                assert chance >= node[CHANCE]
                assert token != node[TOKEN]
                if not step["path"]:
                    assert step["bonus"] == [token, chance]
    assert refused > 24


def test_phases_leave_the_watching_out(bench, prompt):
    _, notes = watched(bench.arm("ngram"), prompt, GREEDY)
    for seen in notes.steps:
        assert 0.0 < seen.watching_s <= seen.step.seconds["verify"]
        assert seen.seconds["verify"] == pytest.approx(seen.step.seconds["verify"] - seen.watching_s)
        assert seen.seconds["score"] == seen.step.seconds["score"]


def test_the_arm_is_as_it_was(bench, prompt):
    arm = bench.arm("suffix")
    before = arm.engine.parts
    watched(arm, prompt, GREEDY)
    assert arm.engine.parts is before


def test_what_was_dropped_before_scoring_is_shown(bench, prompt):
    """A guess that ends the answer, one behind it, and an id that does not exist; one that is fine in between."""
    vocab, end = bench.target.spec.vocab_size, min(bench.base.eos_ids)
    guess = (end, 65, vocab, 66), (-1, 0, 1, 0, 0)
    arm = scripted(bench, lambda seq: [] if seq.output else Tree((seq.last, *guess[0]), guess[1]))
    with pytest.warns(RuntimeWarning, match="the vocabulary has"):
        _, notes = watched(arm, prompt, {"max_tokens": 8})
    story = told(notes.steps, bench.base.words, ())
    first = story["steps"][0]
    assert [node[FATE] for node in first["nodes"][1:4]] == [DROPPED] * 3
    assert first["nodes"][4][FATE] in (STOOD, REFUSED)
    assert [node[CHANCE] is None for node in first["nodes"]] == [True] * 4 + [False]
    assert set(first["rows"]) <= {0, 4}
    assert story["tokens"][first["nodes"][1][TOKEN]] == bench.base.words.tokenizer.name(end) != ""
    assert story["tokens"][first["nodes"][3][TOKEN]].startswith("(token ")


def seen(tree, path, emitted):
    draft, verdict = Draft((tree,)), Verdict((path,), (9,))
    trace = StepTrace(Plan(4), (len(tree),), (1,), (len(path),), (emitted,), 0, {}, draft, verdict)
    return Seen(trace, tree, {}, 0.0)


def test_fates():
    tree = Tree((0, 1, 2, 3, 4, 5), (-1, 0, 0, 1, 3, 2))
    assert [fate(seen(tree, (1, 3), 3), node) for node in range(6)] == [STOOD, STOOD, REFUSED, STOOD, REFUSED, BELOW]
    ended = [fate(seen(tree, (1, 3), 1), node) for node in (1, 2, 3, 4)]
    assert ended == [STOOD, REFUSED, END, END]
    assert fate(seen(tree, (), 1), None) == DROPPED


def test_kept_finds_every_node_again():
    tree = Tree((0, 7, 7, 8, 8, 9), (-1, 0, 0, 1, 2, 0))
    for gone in ({1}, {2}, {3, 5}, {5}, set()):
        scored = tree.keep(lambda node, gone=gone: node not in gone)
        places = kept(tree, scored)
        found = [place for place in places if place is not None]
        assert found == list(range(len(scored)))
        assert all(scored.tokens[p] == tree.tokens[i] for i, p in enumerate(places) if p is not None)


def test_the_comparison_is_of_the_same_answer(bench, prompt):
    beside = record(bench, "ngram", prompt, GREEDY, "plain").beside
    assert beside.parts_at is None
    assert beside.ms_per_token > 0
    assert beside.other_ms_per_token > 0
    assert record(bench, "none", prompt, {**GREEDY, "stop": "zzz"}, "ngram").beside.name == "ngram"


def test_stop_texts_cut_the_words_as_the_engine_cuts_the_text(bench, prompt):
    whole = record(bench, "ngram", prompt, GREEDY).text
    stop = whole[6:9]
    found = record(bench, "ngram", prompt, {**GREEDY, "stop": [stop]})
    assert found.text == whole[: whole.index(stop)]
    assert "".join(piece for piece, *_ in found.story["words"]) == found.text


def test_without_a_tokenizer_there_is_nothing_to_show():
    with pytest.raises(SpecError, match="no tokenizer"):
        record(Bench.open(Config("random:tiny", runtime="torch")), "ngram", [1, 2], GREEDY)


@pytest.mark.parametrize("law", ["sampled", "distinct"])
def test_drafts_that_chance_made_are_read_too(bench, prompt, law):
    """They are judged by rejection, so the token that stood in for a refused one need not be the likeliest."""
    found = record(bench, f"skip:layers=1,depth=3,width=2,nodes=6,law={law}", prompt, {**SAMPLED, "temperature": 1.3})
    assert {step["law"] for step in found.story["steps"]} - {None, "chosen"} == {law}
    fates = Counter(node[FATE] for step in found.story["steps"] for node in step["nodes"][1:])
    assert fates[STOOD] == found.sample.accepted
    assert sum(fates.values()) == found.sample.drafted > 0
