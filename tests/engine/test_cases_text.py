"""Failures met elsewhere, with their right values: what the greedy text is, where it ends, what is returned.

Numbers are those of docs/failures.md. Scripted targets say poison (the last id) off their script.
"""

import itertools
from dataclasses import fields

import pytest
import torch

from forerun.cli.common import result_json
from forerun.core.draft import Tree
from forerun.core.errors import CapacityError, SpecError
from forerun.core.params import SamplingParams
from forerun.drafters.model import ModelDrafter, ModelOptions
from forerun.drafters.ngram import NgramDrafter
from forerun.drafters.prediction import PredictionDrafter
from forerun.testing.engines import Letters, scripted, toy_engine
from forerun.testing.noisy import NoisyDrafter
from forerun.testing.scripted import ScriptedDrafter, always, by_position
from forerun.testing.toy import ToyTarget, fixed_law, scripted_law, table_law

EOS = 2
KS = (1, 2, 4, 8)


def row_law(logits):
    row = torch.tensor(logits, dtype=torch.float64)
    return lambda tokens: row


def view(result):
    """Everything a caller sees of an answer but its statistics."""
    tokens = [(token.id, token.logprobs) for token in result.tokens]
    return result.text, tokens, result.finish_reason, result.usage


@pytest.mark.parametrize(("guess", "accepted"), [([1], 0), ([7], 1)])
def test_1_the_first_drafted_token_is_checked_too(guess, accepted):
    engine = scripted([7, 8, 9], guess, prompt_len=3)
    result = engine.generate([1, 1, 1], max_tokens=3)
    assert result.token_ids == [7, 8, 9]
    assert result.stats.accepted_at[:1] == [accepted]


@pytest.mark.parametrize("k", range(1, 9))
def test_4_positions_have_no_gap_after_a_rejection(k):
    script = list(range(20, 40))
    guess = [token if i % 2 == 0 else 50 for i, token in enumerate(script)]
    engine = scripted(script, guess, depth=k)
    result = engine.generate([10], max_tokens=20)
    assert result.token_ids == script
    last = {position: token for _, token, position in engine.parts.target.fed}
    assert [last[i] for i in range(20)] == [10, *script[:-1]]


def certain(script, vocab_size=64):
    """A script as a distribution: the next token has all of it, at any temperature."""
    law = scripted_law(script, 1, vocab_size)

    def row(tokens):
        logits = law(tokens)
        return logits.masked_fill(logits < 10.0, -torch.inf)

    return row


class Drawn(ScriptedDrafter):
    """Draws each token from a one-hot row: the script by output position, whatever the target said before."""

    laws = frozenset({"sampled"})

    def __init__(self, script):
        super().__init__(by_position(script))

    def _tree(self, seq, plan):
        chain = super()._tree(seq, plan)
        rows = torch.nn.functional.one_hot(torch.tensor(chain.tokens[1:], dtype=torch.long), 64).double()
        return Tree(chain.tokens, chain.parents, "sampled", dict(enumerate(rows)))


@pytest.mark.parametrize("make", [Drawn, lambda script: ScriptedDrafter(by_position(script))], ids=["drawn", "chosen"])
def test_22_nothing_drafted_behind_a_rejection_survives(make):
    engine = toy_engine(certain([5, 8, 9, 10]), make([5, 6, 7, 9]), depth=3)
    result = engine.generate([1], temperature=1.0, seed=1, max_tokens=4)
    assert result.token_ids == [5, 8, 9, 10]
    fed = [(token, position) for _, token, position in engine.parts.target.fed]
    assert fed[:4] == [(1, 0), (5, 1), (6, 2), (7, 3)]
    assert fed[4] == (8, 2), "the second call goes on from what stands"
    assert [token for token, _ in fed].count(6) == 1


@pytest.mark.parametrize("make", [Drawn, lambda script: ScriptedDrafter(by_position(script))], ids=["drawn", "chosen"])
def test_23_seeded_and_unseeded_requests_in_one_batch(make):
    engine = toy_engine(certain([5, 6, 7, 8]), make([5, 9, 7, 8]))
    requests = [engine.add([1], temperature=1.0, max_tokens=4, seed=seed) for seed in (1, None, 2)]
    while not all(map(engine.finished, requests)):
        engine.step()
    assert [engine.collect(request).token_ids for request in requests] == [[5, 6, 7, 8]] * 3


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("k", KS)
def test_25_nothing_is_emitted_behind_the_end(k, streamed):
    words = Letters([b""] * 5 + [b"a", b"b", b"c"], special=[EOS])
    engine = scripted([5, EOS, 6, 7], [5, EOS, 6, 7], depth=k, vocab_size=8, words=words)
    if streamed:
        events = list(engine.stream([1], max_tokens=9))
        assert [token.id for event in events for token in event.tokens] == [5, EOS]
        assert "".join(event.text for event in events) == "a"
        assert [token for _, token, _ in engine.parts.target.fed if token in (6, 7)] == [], "nor is it scored"
        return
    result = engine.generate([1], max_tokens=9)
    assert (result.token_ids, result.text, result.finish_reason) == ([5, EOS], "a", "stop")
    assert result.usage.completion_tokens == 2
    assert [token for _, token, _ in engine.parts.target.fed if token in (6, 7)] == [], "nor is it scored"
    plain = scripted([5, EOS, 6, 7], vocab_size=8, words=words).generate([1], max_tokens=9)
    assert view(result) == view(plain)


@pytest.mark.parametrize("k", KS)
def test_25_nothing_is_emitted_behind_an_end_that_was_drawn(k):
    """A drawn end stays in the draft to be judged; where it stands the step has a token behind it."""
    engine = toy_engine(certain([5, EOS, 6, 7]), Drawn([5, EOS, 6, 7]), depth=k)
    result = engine.generate([1], temperature=1.0, seed=1, max_tokens=9)
    assert (result.token_ids, result.finish_reason, result.usage.completion_tokens) == ([5, EOS], "stop", 2)
    assert result.stats.accepted == min(k, 2)


@pytest.mark.parametrize(("limit", "reason"), [(5, "stop"), (2, "length")])
def test_26_the_length_cap_does_not_hide_an_earlier_stop(limit, reason):
    words = Letters([b""] * 10 + [b"x", b"y", b"##", b"p", b"q", b"r"])
    script = [10, 11, 12, 13, 14, 15]
    engine = scripted(script, script, depth=6, vocab_size=16, words=words)
    result = engine.generate([1], max_tokens=limit, stop=["##"])
    assert (result.text, result.finish_reason) == ("xy", reason)


@pytest.mark.parametrize("k", [0, 1, 2, 3, 11])
def test_27_28_text_ids_and_logprobs_end_at_the_same_token(k):
    words = Letters([b""] * 3 + [bytes([c]) for c in b"xENDabcfgh"])
    spelled = words.encode("xENDabcEfgh", bos=False)
    engine = scripted(spelled, spelled if k else None, depth=k, vocab_size=13, words=words)
    result = engine.generate([1], max_tokens=20, stop="END", logprobs=2)
    assert (result.text, result.finish_reason) == ("x", "stop")
    assert result.token_ids == spelled[:4]
    assert all(token.logprobs is not None and len(token.logprobs.top) == 2 for token in result.tokens)
    assert result.usage.completion_tokens == 4


@pytest.mark.parametrize("limit", range(1, 7))
def test_30_36_exactly_as_many_tokens_as_asked_for(limit):
    script = [5, 6, 7, 8, 9, 10]
    engine = scripted(script, script, depth=4)
    result = engine.generate([1], max_tokens=limit)
    assert result.token_ids == script[:limit]
    assert result.finish_reason == "length"
    assert result.stats.drafted <= limit - 1
    assert all(tree.drafted <= limit - 1 for tree in engine.parts.drafter.proposed)


@pytest.mark.parametrize("floor", range(4))
def test_32_stop_tokens_are_masked_until_the_floor(floor):
    logits = [0.0] * 8
    logits[EOS], logits[5] = 10.0, 9.0
    engine = toy_engine(row_law(logits), always([EOS] * 3), depth=3, vocab_size=8)
    result = engine.generate([1], min_tokens=floor, max_tokens=10)
    assert result.token_ids == [5] * floor + [EOS]


def test_34_no_end_token_means_no_cutting():
    engine = scripted(list(range(20, 35)), [20, 21, EOS], prompt_len=9, eos_ids=())
    result = engine.generate([5, 6, 7, 8, 9, 10, 11, 7, 8], max_tokens=15)
    assert len(result.token_ids) == 15
    assert result.finish_reason == "length"


@pytest.mark.parametrize("script", [[5, 106, 8], [5, 7, 8]])
def test_35_any_of_several_end_tokens_ends(script):
    engine = scripted(script, script, vocab_size=128, eos_ids=(1, 106, 7))
    result = engine.generate([3], max_tokens=9)
    assert result.token_ids == script[:2]
    assert result.finish_reason == "stop"


def test_ignored_end_tokens_are_ordinary_tokens_but_stop_token_ids_still_stop():
    script = [5, EOS, 6, 9]
    engine = scripted(script, script)
    assert engine.generate([1], max_tokens=4, ignore_eos=True).token_ids == script
    assert engine.generate([1], max_tokens=4, ignore_eos=True, stop_token_ids=[6]).token_ids == script[:3]


@pytest.mark.parametrize("k", [0, 3])
def test_38_39_logprobs_are_the_target_s_and_never_missing(k):
    engine = toy_engine(fixed_law([0.4, 0.3, 0.2, 0.1]), always([0, 0, 0]) if k else None, depth=3, vocab_size=4)
    result = engine.generate([1], max_tokens=6, logprobs=3, ignore_eos=True)
    assert len(result.tokens) == 6
    for token in result.tokens:
        assert token.logprobs.token == pytest.approx(-0.9163, abs=1e-4)
        assert [round(value, 4) for _, value in token.logprobs.top] == [-0.9163, -1.204, -1.6094]


LOGITS = [0, 0.1, -1, -1, -1, 3, 2, -1]


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("params", [{"presence_penalty": 1.5}, {"repetition_penalty": 2.0}])
def test_44_46_penalties_reach_drafted_positions(k, params):
    engine = toy_engine(row_law(LOGITS), always([5, 5, 5]) if k else None, depth=3, vocab_size=8, eos_ids=())
    assert engine.generate([7], max_tokens=6, **params).token_ids == [5, 6, 5, 5, 5, 5]


@pytest.mark.parametrize("k", [0, 2])
def test_46_a_repetition_penalty_multiplies_negative_logits(k):
    engine = toy_engine(row_law([-1, -1.5, -3, -9]), always([0, 0]) if k else None, depth=2, vocab_size=4, eos_ids=())
    assert engine.generate([3], max_tokens=3, repetition_penalty=2.0).token_ids == [0, 1, 0]


@pytest.mark.parametrize("right", [None, 0, 1, 4])
@pytest.mark.parametrize(("bias", "token"), [({5: -100}, 6), ({7: 100}, 7)])
def test_47_a_bias_reaches_every_row(right, bias, token):
    """Guesses that the bias makes stand lead below the root; the others are what stands without it."""
    logits = [0.0] * 8
    logits[5], logits[6] = 3.0, 2.0
    guess = None if right is None else always([token] * right + [5] * (4 - right))
    result = toy_engine(row_law(logits), guess, vocab_size=8).generate([1], max_tokens=6, logit_bias=bias)
    assert result.token_ids == [token] * 6
    assert bool(right) == (result.stats.accepted > 0)


@pytest.mark.parametrize("k", [0, 4])
def test_49_a_mask_hook_sees_every_scored_row(k):
    odd = [2 * i + 5 for i in range(10)]

    def allowed(tokens):
        return None if len(tokens) < 4 else range(0, 64, 2)

    law = scripted_law(odd, 1, 64)
    engine = toy_engine(law, always([5, 7, 9, 11]) if k else None)
    ids = engine.generate([1], max_tokens=10, allowed=allowed, ignore_eos=True).token_ids
    assert all(token % 2 == 0 for token in ids[4:])
    assert ids == toy_engine(law).generate([1], max_tokens=10, allowed=allowed, ignore_eos=True).token_ids


CHANGES = {
    "top_k": ({"top_k": 1, "temperature": 2.0, "seed": 3}, {"temperature": 2.0, "seed": 3}),
    "top_p": ({"top_p": 0.05, "temperature": 2.0, "seed": 3}, {"temperature": 2.0, "seed": 3}),
    "min_p": ({"min_p": 1.0, "temperature": 2.0, "seed": 3}, {"temperature": 2.0, "seed": 3}),
    "temperature": ({"temperature": 5.0, "seed": 3}, {}),
    "seed": ({"temperature": 2.0, "seed": 4}, {"temperature": 2.0, "seed": 3}),
    "repetition_penalty": ({"repetition_penalty": 3.0}, {}),
    "presence_penalty": ({"presence_penalty": 2.0}, {}),
    "frequency_penalty": ({"frequency_penalty": 2.0}, {}),
    "logit_bias": ({"logit_bias": {6: 100.0}}, {}),
    "allowed": ({"allowed": lambda tokens: [3]}, {}),
    "stop_token_ids": ({"stop_token_ids": [5]}, {}),
    "max_tokens": ({"max_tokens": 3}, {}),
    "min_tokens": ({"min_tokens": 12, "stop_token_ids": [5], "max_tokens": 12}, {"stop_token_ids": [5]}),
    "stop": ({"stop": ["ff"]}, {}),
    "ignore_eos": ({"logit_bias": {2: 100.0}, "ignore_eos": True}, {"logit_bias": {2: 100.0}}),
}
ELSEWHERE = {"n", "logprobs", "prediction"}  # answers more, shows more, is faster


def test_51_no_parameter_is_left_out():
    assert CHANGES.keys() | ELSEWHERE == {field.name for field in fields(SamplingParams)}


@pytest.mark.parametrize("name", CHANGES)
def test_51_every_parameter_is_honoured_under_speculation(name):
    changed, base = CHANGES[name]
    answers, words = [], Letters([bytes([97 + i]) for i in range(8)])

    def say(guess, params):
        engine = toy_engine(row_law(LOGITS), guess, depth=3, vocab_size=8, words=words)
        return engine.generate([7], **{"max_tokens": 12, **params})

    for params in (changed, base):
        plain = say(None, params).token_ids
        right = [say(guess, params) for guess in (always([5, 5, 5]), by_position(plain))]
        assert [result.token_ids for result in right] == [plain, plain]
        assert right[1].stats.accepted > 0 or len(plain) == 1, "rows below the root are looked at"
        answers.append(plain)
    assert answers[0] != answers[1]


JSON_PIECES = Letters([b""] * 3 + [bytes([c]) for c in b'{"a:7x}1'], special=[EOS])
OBJECT = '{"a":7}'


def digit_grammar(tokens):
    """`{"a":D}` with D one digit, one token a character; asking it past the end is an error."""
    text = JSON_PIECES.decode(tokens)
    if EOS in tokens:
        raise AssertionError("asked past the end")
    assert text == '{"a":'[: len(text)] or text[:5] == '{"a":', text
    options = [OBJECT[len(text)]] if len(text) != 5 and len(text) < 7 else list("71")
    if len(text) == 7:
        return [EOS]
    return [token for option in options for token in JSON_PIECES.encode(option, bos=False)]


@pytest.mark.parametrize(
    ("guess", "drafted"),
    [('{"a":x}', 5), (OBJECT, 7), ('{"x":7}', None), (OBJECT + "xx", 7)],
)
def test_52_53_56_drafts_are_cut_where_the_grammar_forbids_them(guess, drafted):
    script = [*JSON_PIECES.encode(OBJECT, bos=False), EOS]
    guessed = JSON_PIECES.encode(guess, bos=False)
    engine = scripted(script, guessed, depth=8, vocab_size=12, words=JSON_PIECES)
    result = engine.generate([1], max_tokens=20, allowed=digit_grammar)
    assert (result.text, result.finish_reason) == (OBJECT, "stop")
    assert result.token_ids == script
    if drafted is not None:
        assert result.stats.drafted_at[drafted - 1] == 1
        assert len(result.stats.drafted_at) == drafted


@pytest.mark.parametrize("guess", ['{"a":7}', '{"x":7}'])
def test_56_a_draft_model_under_the_same_grammar(guess):
    """The hook is a function of the text, so a draft model that asks it about guesses disturbs nobody."""
    script, guessed = ([*JSON_PIECES.encode(text, bos=False), EOS] for text in (OBJECT, guess))
    law, other = (scripted_law(ids, 1, 12) for ids in (script, guessed))
    engine = toy_engine(law, ModelDrafter(ToyTarget(other, 12)), depth=4, vocab_size=12, words=JSON_PIECES)
    result = engine.generate([1], max_tokens=20, allowed=digit_grammar)
    assert (result.text, result.finish_reason) == (OBJECT, "stop")
    assert result.token_ids == script
    assert result.stats.accepted > 0


@pytest.mark.parametrize("k", [0, 8, 10])
@pytest.mark.parametrize("ignored", [False, True])
def test_53_a_grammar_is_never_asked_past_its_end(k, ignored):
    """The end lies inside the block, junk behind it. Under `ignore_eos` a grammar's end is still the end."""
    script = [*JSON_PIECES.encode(OBJECT, bos=False), EOS]
    engine = scripted(script, [*script, 9, 9] if k else None, depth=k, vocab_size=12, words=JSON_PIECES)
    result = engine.generate([1], max_tokens=20, allowed=digit_grammar, ignore_eos=ignored)
    assert (result.text, result.finish_reason) == (OBJECT, "stop")
    assert result.token_ids == script
    assert result.usage.completion_tokens == len(script)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("floor", [20, {"stop_token_ids": [6]}, {"ignore_eos": True}, {"logit_bias": {2: -100.0}}])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("make", [None, by_position([3, 4, EOS, 3]), "chosen", "sampled", "distinct", "foreseen"])
def test_203_where_a_grammar_leaves_only_the_end_it_stands_before_the_floor(make, mask, floor, temperature):
    """What is allowed are 3 and the end, then 4 and the end, then the end alone: the floor holds while it can."""
    ask = {"min_tokens": 20, "temperature": temperature, "seed": 4, **(floor if isinstance(floor, dict) else {})}

    def allowed(tokens):
        ids = [[3, EOS], [4, EOS], [EOS]][min(len(tokens), 2)]
        return torch.zeros(8, dtype=torch.bool).index_fill(0, torch.tensor(ids), True) if mask else ids

    law = table_law(8, 3)
    drafter = ModelDrafter(ToyTarget(law, 8), ModelOptions(law=make)) if isinstance(make, str) else make
    result = toy_engine(law, drafter, depth=4, vocab_size=8).generate([1], allowed=allowed, max_tokens=30, **ask)
    assert (result.token_ids, result.finish_reason) == ([3, 4, EOS], "stop")


@pytest.mark.parametrize("k", [0, 3])
def test_203_where_every_token_is_an_end_the_first_one_stands(k):
    engine = toy_engine(table_law(8, 3), always([3, 4, 5]) if k else None, depth=3, vocab_size=8)
    result = engine.generate([1], min_tokens=5, max_tokens=9, stop_token_ids=range(8))
    assert (len(result.token_ids), result.finish_reason) == (1, "stop")


@pytest.mark.parametrize("k", [0, 3])
def test_203_a_grammar_that_allows_nothing_at_all_has_no_right_answer(k):
    engine = toy_engine(table_law(8, 3), always([3, 3, 3]) if k else None, depth=3, vocab_size=8)
    with pytest.raises(SpecError, match="allowed lets none"):
        engine.generate([1], allowed=lambda tokens: [3] * (len(tokens) < 2), max_tokens=9, ignore_eos=True)


@pytest.mark.parametrize("bad", [64, -1])
def test_61_an_id_outside_the_vocabulary_ends_the_proposal(bad):
    engine = scripted([5, 6, 7], [5, bad, 6], depth=3)
    with pytest.warns(RuntimeWarning, match=f"'scripted'.*token {bad} "):
        result = engine.generate([1], max_tokens=3)
    assert result.token_ids == [5, 6, 7]
    assert result.stats.dropped == 1
    assert result.stats.drafted_at[0] >= 1
    assert len(result.stats.drafted_at) == 1


@pytest.mark.parametrize(("prompt", "tokens"), [(10, 6), (15, 1)])
def test_68_drafts_never_pass_the_end_of_the_context(prompt, tokens):
    script = list(range(20, 60))
    engine = scripted(script, script, depth=5, prompt_len=prompt, max_len=16)
    result = engine.generate([1] * prompt, max_tokens=100)
    assert result.token_ids == script[:tokens]
    assert result.finish_reason == "length"
    assert max(position for _, _, position in engine.parts.target.fed) < 16


@pytest.mark.parametrize("guess", [None, [5]])
@pytest.mark.parametrize("length", [32, 33, 320])
def test_68_72_a_prompt_that_leaves_no_room_is_refused_with_both_numbers(length, guess):
    engine = scripted([5], guess, max_len=32)
    with pytest.raises(CapacityError, match=rf"{length} tokens.*32"):
        engine.generate([1] * length)
    assert engine.generate([1], max_tokens=1).token_ids == [5]


@pytest.mark.parametrize("k", [3])
def test_78_98_full_acceptance_emits_the_bonus_and_rates_stay_rates(k):
    script = list(range(20, 32))
    engine = scripted(script, script, depth=k)
    stats = engine.generate([1], max_tokens=12).stats
    assert stats.target_passes == 3
    assert stats.acceptance == 1.0
    assert stats.tau == 4.0


def test_87_a_character_split_over_tokens_is_streamed_whole():
    words = Letters([bytes([b]) for b in range(256)])
    script = list("好🎉é".encode())
    for k in range(9):
        engine = scripted(script, script if k else None, depth=k, vocab_size=256, eos_ids=(), words=words)
        events = list(engine.stream([1], max_tokens=9))
        assert "".join(event.text for event in events) == "好🎉é"
        assert not any("�" in event.text for event in events)
        assert len(events) <= engine.parts.target.forwards


@pytest.mark.parametrize(
    ("stop", "text", "reason"), [("own fox", "The quick br", "stop"), ("brown bear", None, "length")]
)
def test_89_the_head_of_a_stop_string_is_held_back(stop, text, reason):
    words = Letters([bytes([b]) for b in range(256)])
    script = list(b"The quick brown fox")
    for k in range(9):
        engine = scripted(script, script if k else None, depth=k, vocab_size=256, eos_ids=(), words=words)
        events = list(engine.stream([1], max_tokens=len(script), stop=stop))
        assert "".join(event.text for event in events) == (text or "The quick brown fox")
        assert events[-1].finish_reason == reason


@pytest.mark.parametrize("k", [0, 4])
def test_42_bytes_of_a_token_are_its_own(k):
    words = Letters([bytes([b]) for b in range(256)])
    script = list("🎉".encode())
    engine = scripted(script, script if k else None, depth=k, vocab_size=256, eos_ids=(), words=words)
    events = list(engine.stream([1], max_tokens=4, logprobs=2))
    tokens = [token for event in events for token in event.tokens]
    assert len(events) == (1 if k else 4)
    assert [words.token_bytes(token.id) for token in tokens] == [b"\xf0", b"\x9f", b"\x8e", b"\x89"]
    assert b"".join(words.token_bytes(token.id) for token in tokens).decode() == "🎉"
    assert "".join(event.text for event in events) == "🎉"
    for token in tokens:
        assert [len(words.token_bytes(other)) for other, _ in token.logprobs.top] == [1, 1]


@pytest.mark.parametrize("name", ["prompt_logprobs", "echo"])
def test_43_scoring_of_prompts_is_not_offered_and_says_so(name):
    engine = scripted([5, 6])
    with pytest.raises(SpecError, match=name):
        engine.generate([5, 6, 7], max_tokens=1, logprobs=1, **{name: 1})
    assert engine.generate([1], max_tokens=2).token_ids == [5, 6]


def test_99_no_drafts_is_null_not_nan():
    engine = scripted([5, 6], [9], depth=4)
    result = engine.generate([1], max_tokens=1)
    assert (result.stats.drafted, result.stats.accepted, result.stats.acceptance) == (0, 0, None)
    assert result.stats.tau == 1.0
    assert result_json(result)["stats"]["acceptance"] is None


def test_99_a_lookup_that_never_matches():
    result = toy_engine(scripted_law(range(20, 40), 1, 64), NgramDrafter()).generate([1], max_tokens=20)
    assert (result.stats.drafted, result.stats.accepted, result.stats.acceptance) == (0, 0, None)
    assert result.stats.tau == 1.0
    assert result_json(result)["stats"]["acceptance"] is None


@pytest.mark.parametrize(
    ("script", "prediction", "accepted"),
    [([5, 6, 20, 8, 9], [5, 6, 7, 8, 9], 2), ([5, 6, 7, 8, 9], [5, 6, 7, 8, 9], 4), ([5, 6, 20, 8, 9], None, 0)],
)
def test_93_a_wrong_prediction_is_nobody_s_token(script, prediction, accepted):
    """Of a perfect prediction the last token is the bonus, so that of five tokens four were verified drafts."""
    engine = toy_engine(scripted_law(script, 1, 64), PredictionDrafter(), depth=8)
    result = engine.generate([1], max_tokens=5, prediction=prediction)
    assert result.token_ids == script
    assert result.usage.completion_tokens == 5
    assert (result.stats.accepted >= accepted) and (accepted or not result.stats.drafted)
    assert (result.stats.drafted == result.stats.accepted) == (prediction in (script, None))


@pytest.mark.parametrize(
    ("params", "emitted"), [({"max_tokens": 3}, 3), ({"stop_token_ids": [11]}, 2), ({"stop": "kl"}, 2)]
)
def test_95_counters_are_taken_after_the_cut(params, emitted):
    script = list(range(10, 20))
    words = Letters([bytes([97 + i]) for i in range(26)])
    engine = scripted(script, script, depth=8, vocab_size=26, words=words)
    result = engine.generate([1], **{"max_tokens": 10, **params})
    stats = result.stats
    assert len(result.token_ids) == result.usage.completion_tokens == stats.emitted == emitted
    assert stats.accepted == sum(stats.accepted_at) == sum(token.drafted for token in result.tokens)
    assert stats.accepted <= min(stats.drafted, emitted)


def test_132_an_empty_prompt_is_refused_and_the_engine_lives():
    engine = scripted([5, 6])
    for prompt in ([], ()):
        with pytest.raises(SpecError, match="empty"):
            engine.generate(prompt)
    assert engine.generate([1], max_tokens=2).token_ids == [5, 6]


@pytest.mark.parametrize("bad", [{64: 1.0}, {65: 1.0}])
def test_133_a_bias_outside_the_vocabulary_is_refused_by_its_id(bad):
    engine = scripted([5, 6])
    with pytest.raises(SpecError, match=str(next(iter(bad)))):
        engine.generate([1], logit_bias=bad)
    assert not engine.busy
    assert engine.generate([1], max_tokens=2).token_ids == [5, 6]


@pytest.mark.parametrize("prompt", [[64], [-1], [1.5], [True], [None]])
def test_prompt_ids_outside_the_vocabulary_are_refused(prompt):
    with pytest.raises(SpecError, match="vocabulary"):
        scripted([5]).generate(prompt)


def test_texts_without_a_tokenizer_are_refused():
    engine = scripted([5])
    for call in (
        lambda: engine.generate("hello"),
        lambda: engine.generate([1], stop="x"),
        lambda: engine.generate([1], prediction="x"),
        lambda: engine.chat("x"),
    ):
        with pytest.raises(SpecError, match="token"):
            call()


def test_139_an_unknown_parameter_suggests_the_near_name():
    with pytest.raises(SpecError, match="did you mean 'max_tokens'"):
        scripted([5]).generate([1], max_token=3)


@pytest.mark.parametrize("k", KS)
def test_157_a_tree_of_near_ties_keeps_the_argmax(k):
    logits = [-9.0] * 8
    logits[5], logits[6], logits[7] = 3.0, 2.999, 2.9
    tree = Tree((5, 7, 6, 5), (-1, 0, 0, 0))
    engine = toy_engine(
        row_law(logits), lambda seq: Tree((seq.last, *tree.tokens[1:]), tree.parents), vocab_size=8, width=3
    )
    assert engine.generate([5], max_tokens=12).token_ids == [5] * 12


def test_159_the_text_does_not_depend_on_the_drafter():
    script = [(7 * i) % 50 + 3 for i in range(30)]
    guesses = {
        "uniform": lambda seq: [(13 * len(seq) + i) % 64 for i in range(8)],
        "second best": lambda seq: [0] * 8,
        "right": lambda seq: script[len(seq.output) :],
    }
    for guess, k in itertools.product(guesses.values(), KS):
        law = scripted_law(script, 1, 64)
        assert toy_engine(law, guess, depth=k).generate([1], max_tokens=30).token_ids == script


def test_161_which_tokens_came_from_drafts():
    engine = scripted([5, 6, 7, 8, 9], [5, 6, 9, 9, 9], depth=3)
    result = engine.generate([1], max_tokens=5)
    assert [token.drafted for token in result.tokens][:3] == [True, True, False]
    assert sum(token.drafted for token in result.tokens) == result.stats.accepted


def test_103_accepted_and_emitted_are_two_numbers():
    from forerun.core.seq import SeqStats

    stats = SeqStats()
    for accepted in [2] * 70 + [1] * 30:
        stats.count(3, 3, accepted, accepted + 1)
    assert stats.accepted / stats.target_passes == 1.70
    assert stats.tau == 2.70


def by_hand(law, prompt, guess, k, count):
    """Greedy speculation without a memory: every row from scratch. The answer, and what each round accepted."""
    tokens, rounds = list(prompt), []
    while (left := len(prompt) + count - len(tokens)) > 0:
        accepted = 0
        for token in guess[: min(k, left - 1)]:
            if token != int(law(tokens).argmax()):
                break
            tokens.append(token)
            accepted += 1
        tokens.append(int(law(tokens).argmax()))
        rounds.append(accepted)
    return tokens[len(prompt) :], rounds


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("seed", range(4))
def test_164_a_cacheless_reference_gives_the_same(k, seed):
    law = table_law(6, seed)
    guess = [3, 1, 4, 1, 5, 2, 0, 3]
    drafter = ScriptedDrafter(always(guess))
    engine = toy_engine(ToyTarget(law, 6), drafter, depth=k, vocab_size=6, eos_ids=())
    expected, rounds = by_hand(law, [4, 5], guess, k, 40)
    assert engine.generate([4, 5], max_tokens=40).token_ids == expected
    assert [verdict.accepted[0] for verdict in drafter.verdicts] == rounds


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("params", [{}, {"stop": ["ca"]}, {"min_tokens": 9}, {"presence_penalty": 1.0}])
def test_159_everything_a_caller_sees_is_what_plain_decoding_shows(k, params):
    law, words = table_law(6, 1), Letters([bytes([97 + i]) for i in range(6)])
    found = [
        view(
            toy_engine(law, drafter, depth=k, vocab_size=6, words=words).generate(
                [4, 5], max_tokens=30, logprobs=2, **params
            )
        )
        for drafter in (None, NoisyDrafter(law), NgramDrafter())
    ]
    assert found[1:] == found[:1] * 2
