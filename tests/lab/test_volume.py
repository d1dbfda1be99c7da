"""Acceptance without volume is warned of; through real engines where the case can be had."""

import pytest

from forerun.assemble import Config
from forerun.lab.bench import Bench
from forerun.lab.phases import same_weights
from forerun.lab.sample import Counts
from forerun.lab.volume import Volume


@pytest.fixture(scope="module")
def bench(models):
    return Bench.open(Config(str(models["folder"]), runtime="torch"))


def volume(bench, spec):
    arm = bench.arm(spec)
    samples = [arm.answer([[start, 98, 99]], {"max_tokens": 24, "ignore_eos": True}) for start in range(97, 100)]
    return Volume.of(Counts.of(samples), same_weights(bench.target, arm.engine.parts.drafter))


def test_case_154_a_full_acceptance_that_means_nothing(bench, models):
    """Mesh-LLM/mesh-llm#567, ggml-org/llama.cpp#3919: the target as its own drafter; one that hardly dares."""
    identity = volume(bench, f"model:path={models['folder']}")
    assert identity.rate == 1.0
    assert identity.identity
    assert "target's own weights" in identity.warnings()[0]

    timid = volume(bench, "suffix:min_match=14,cached=0")
    assert timid.rate == 1.0
    assert 0 < timid.per_round < 0.5
    assert any("rate without volume" in text for text in timid.warnings())

    ordinary = volume(bench, "skip:layers=1,depth=2")
    assert 0 < ordinary.rate < 0.98
    assert ordinary.per_round > 0.5
    assert ordinary.warnings() == []


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((100, 99, 50, 150), ["99%"]),
        ((100, 98, 50, 148), []),
        ((24, 12, 50, 62), ["0.48 guesses"]),
        ((25, 12, 50, 62), []),
        ((4, 4, 100, 104), ["100%", "0.04 guesses"]),
        ((0, 0, 50, 50), ["nothing was drafted"]),
    ],
)
def test_each_limit(counts, words):
    warnings = Volume(*counts).warnings()
    assert len(warnings) == len(words)
    for warning, word in zip(warnings, words, strict=True):
        assert word in warning


def test_what_stands_beside_the_rate():
    found = Volume(drafted=30, accepted=10, rounds=20, tokens=40).to_json()
    assert (found["rate"], found["drafted_per_round"], found["share_of_tokens"]) == (0.33333, 1.5, 0.25)
    assert (found["rounds"], found["warnings"]) == (20, [])
