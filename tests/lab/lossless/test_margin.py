"""How close two tokens were, in logits and in the race that decided."""

import random

import pytest
import torch

from forerun.core.noise import hashed, race, target_slot
from forerun.lab.lossless.asking import Question, answer
from forerun.lab.lossless.margin import lead, margin, row_after


def test_the_lead_says_who_won_and_by_how_much():
    rng = random.Random(0)
    won = 0
    for _ in range(50):
        odds, key, ids = rng.uniform(-4, 4), rng.getrandbits(64), rng.sample(range(1000), 2)
        ahead = lead(odds, *ids, key)

        def first(log_odds):
            return race(torch.tensor([log_odds, 0.0], dtype=torch.float64).exp(), key, torch.tensor(ids)) == 0

        assert first(odds) == (ahead > 0)
        assert first(odds - ahead + 1e-6)
        assert not first(odds - ahead - 1e-6)
        won += ahead > 0
    assert 10 < won < 40


def test_the_margin_is_that_of_the_target_s_own_row(bench):
    prompt = bench.tokens([{"role": "user", "content": "the sea was the sea"}])
    row = row_after(bench.target, prompt)
    said = answer(bench.plain().engine, [Question("w", "p", tuple(prompt))], [{"max_tokens": 1}])[0].token_ids
    best, second = row.topk(2).indices.tolist()
    assert said == [best]
    found = margin(bench.target, prompt, best, second, {"max_tokens": 1})
    assert found["logits"] == found["decided"] == pytest.approx(float(row[best] - row[second]), abs=1e-5)
    assert found["near_tie"] == (found["logits"] < 1e-3)
    assert margin(bench.target, prompt, best, best, {})["near_tie"]


def test_a_sampled_draw_is_decided_by_the_race_of_its_seed(bench):
    prompt = bench.tokens([{"role": "user", "content": "a b c"}])
    row = row_after(bench.target, prompt).double()
    for seed in range(5):
        params = {"temperature": 1.2, "seed": seed, "max_tokens": 1}
        (result,) = answer(bench.plain().engine, [Question("w", "p", tuple(prompt))], [params])
        ours = result.token_ids[0]
        key = hashed(seed, target_slot(len(prompt)))
        without = torch.softmax(row / 1.2, -1)
        without[ours] = 0
        theirs = race(without, key)
        found = margin(bench.target, prompt, ours, theirs, params)
        assert found["decided"] > 0
        assert margin(bench.target, prompt, theirs, ours, params)["decided"] == pytest.approx(
            -found["decided"], abs=1e-5
        )


def test_nothing_is_left_in_memory(bench):
    prompt = bench.tokens([{"role": "user", "content": "x " * 30}])
    first = row_after(bench.target, prompt)
    for _ in range(30):
        assert torch.equal(row_after(bench.target, prompt), first)
