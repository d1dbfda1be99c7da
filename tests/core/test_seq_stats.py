"""Rates of one answer: reading the prompt and writing the answer are apart."""

import pytest

from forerun.cli.common import stats_json, stats_line
from forerun.core.seq import SeqStats


def stats(**more):
    """1,000 prompt tokens read in 2 s, then 41 tokens, the last 40 of them in 1 s; asked half a second before."""
    values = {"prefilled": 1000, "emitted": 41, "first_tokens": 1, "target_passes": 41}
    times = {"added_s": 9.5, "started_s": 10.0, "first_s": 12.0, "ended_s": 13.0}
    return SeqStats(**{**values, **times, **more})


def test_243_reading_and_writing_are_apart():
    found = stats()
    assert found.prompt_tokens_per_s == 500.0
    assert found.decode_tokens_per_s == pytest.approx(40.0)
    assert found.ttft_s == 2.5
    assert found.tokens_per_s == pytest.approx(41 / 3), "of all, the reading included"


def test_243_a_longer_prompt_does_not_make_writing_slower():
    later = stats(prefilled=9000, first_s=30.0, ended_s=31.0)
    assert later.decode_tokens_per_s == stats().decode_tokens_per_s
    assert later.tokens_per_s < stats().tokens_per_s / 5


@pytest.mark.parametrize(
    ("more", "prompt", "decode"),
    [
        ({"prefilled": 0}, None, 40.0),
        ({"preempted": 1}, None, 40.0),
        ({"emitted": 1}, 500.0, None),
        ({"first_s": 0.0, "ended_s": 0.0, "emitted": 0}, None, None),
        ({"started_s": 12.0}, None, 40.0),
    ],
)
def test_243_what_was_not_timed_has_no_rate(more, prompt, decode):
    found = stats(**more)
    assert (found.prompt_tokens_per_s, found.decode_tokens_per_s) == (prompt, pytest.approx(decode) if decode else None)
    assert "None" not in stats_line(found)


def test_243_people_and_machines_are_told_both():
    said = stats_line(stats(seconds={"score": 3.0}))
    assert (
        "1000 prompt tokens read at 500.0 tokens/s, first token after 2.50 s, then 40.0 tokens/s; score 3.00 s" in said
    )
    found = stats_json(stats())
    assert (found["prompt_tokens"], found["prompt_tokens_per_s"], found["ttft_s"]) == (1000, 500.0, 2.5)
    assert found["decode_tokens_per_s"] == pytest.approx(40.0)
