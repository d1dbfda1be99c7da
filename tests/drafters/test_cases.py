"""Failures from the field that concern every drafter alike."""

from __future__ import annotations

import pytest

from forerun.core.noise import uniform
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.drafters.first_of import FirstOf
from forerun.drafters.model import ModelDrafter
from forerun.drafters.ngram import NgramDrafter, NgramOptions
from forerun.drafters.prediction import PredictionDrafter
from forerun.drafters.suffix import SuffixDrafter, SuffixOptions
from forerun.testing.noisy import NoisyDrafter
from forerun.testing.scripted import ScriptedDrafter
from forerun.testing.toy import ToyTarget, scripted_law, table_law

PERIOD = table_law(100, seed=1, order=2)


def decade(tokens):
    """Each request writes ids of its own decade only: the prompt [i, i, i] says which."""
    row = PERIOD([token % 10 for token in tokens]).clone()
    own = 10 * tokens[0]
    row[:own] = row[own + 10 :] = float("-inf")
    return row


@pytest.mark.parametrize("wrong", [64, -1])
def test_case_61_an_id_that_does_not_exist_ends_the_draft(decode, wrong):
    script = [5, 6, 7]
    drafter = ScriptedDrafter(lambda seq: [5, wrong, 6][len(seq.output) :])
    run = decode(scripted_law(script, 1, 64), drafter, [[1]], Plan(3), SamplingParams(max_tokens=3))
    assert run.tokens == script
    assert run.drafted[0] == 1


def test_case_61_a_looked_up_id_is_always_one_of_the_text(decode):
    run = decode(
        table_law(8, order=1), NgramDrafter(), [[1, 2, 1]], Plan(4), SamplingParams(max_tokens=40), vocab_size=8
    )
    assert sum(run.accepted) > 0


@pytest.mark.parametrize("length", [10, 15])
@pytest.mark.parametrize("make", [NgramDrafter, SuffixDrafter, lambda: ModelDrafter(ToyTarget(table_law(8), 8, 16))])
def test_case_68_no_draft_past_the_context(decode, make, length):
    drafter = make()
    prompt = [1, 2, 3] * (length // 3) + [1] * (length % 3)
    run = decode(table_law(8), drafter, [prompt], Plan(5), SamplingParams(max_tokens=100), vocab_size=8, max_len=16)
    assert len(run.seqs[0]) == 16
    assert len(run.tokens) == 16 - length
    assert run.seqs[0].finish_reason == "length"
    own = drafter.target.fed if isinstance(drafter, ModelDrafter) else []
    assert all(position < 16 for _, _, position in [*run.target.fed, *own])


@pytest.mark.parametrize(
    "make",
    [
        NgramDrafter,
        lambda: SuffixDrafter(SuffixOptions(cached=0)),
        lambda: ModelDrafter(ToyTarget(decade, 100)),
        lambda: FirstOf([NgramDrafter(), NoisyDrafter(decade)]),
    ],
    ids=["ngram", "suffix", "model", "cascade"],
)
def test_case_80_requests_keep_apart(decode, make):
    prompts = [[i, i, i] for i in range(8)]
    asks = [SamplingParams(max_tokens=50, temperature=0.8, seed=i) for i in range(8)]
    together = decode(decade, make(), prompts, Plan(4), asks, vocab_size=100)
    for i, seq in enumerate(together.seqs):
        assert all(token // 10 == i for token in seq.token_ids)
        alone = decode(decade, make(), [prompts[i]], Plan(4), asks[i], vocab_size=100).seqs[0]
        assert seq.token_ids == alone.token_ids
        assert isinstance(make(), FirstOf) or seq.stats.accepted == alone.stats.accepted
        assert seq.stats.drafted > 0


def test_case_154_a_drafter_that_is_the_target_is_always_right(decode):
    drafter = ModelDrafter(ToyTarget(table_law(16), 16))
    run = decode(table_law(16), drafter, [[1]], Plan(4), SamplingParams(max_tokens=40), vocab_size=16)
    assert run.seqs[0].stats.acceptance == 1.0
    other = ModelDrafter(ToyTarget(table_law(16, seed=1), 16))
    run = decode(table_law(16), other, [[1]], Plan(4), SamplingParams(max_tokens=40), vocab_size=16)
    assert run.seqs[0].stats.acceptance < 0.98


class Adversary(ScriptedDrafter):
    """Always the second-best id."""

    def __init__(self, law) -> None:
        super().__init__(lambda seq: [int(law(seq.tokens).topk(2).indices[1])] * 3)


def at_random(seq) -> list[int]:
    return [int(12 * uniform(9, (len(seq), i))) for i in range(4)]


@pytest.mark.parametrize("heat", [0.0, 0.9])
@pytest.mark.parametrize("law", [table_law(12, 3, 1), table_law(12, 4, 2, zeros=0.4)], ids=["order 1", "order 2"])
def test_case_159_no_setting_of_a_drafter_changes_the_text(decode, plain, law, heat):
    prompts = [[1, 2, 3, 1, 2], [4, 4], [5]]
    asks = [SamplingParams(max_tokens=25, temperature=heat, seed=i, prediction=(1, 2, 3)) for i in range(3)]
    expected = plain(law, prompts, asks, vocab_size=12)
    drafters = [
        ScriptedDrafter(at_random),
        Adversary(law),
        PredictionDrafter(),
        SuffixDrafter(),
        *(NgramDrafter(NgramOptions(min=least)) for least in range(1, 9)),
        *(NoisyDrafter(law, kind=kind) for kind in ("chosen", "sampled", "distinct")),
    ]
    for drafter in drafters:
        for plan in (Plan(1), Plan(4), Plan(3, nodes=9, width=3)):
            run = decode(law, drafter, prompts, plan, asks, vocab_size=12)
            assert [seq.token_ids for seq in run.seqs] == expected, drafter.name
