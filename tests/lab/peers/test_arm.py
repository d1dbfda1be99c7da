"""A peer as an arm: what becomes of its reply, what it is never asked, and that its process ends."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from forerun.assemble import Config
from forerun.core.errors import SpecError
from forerun.lab.bench import Bench
from forerun.lab.defaults import BASELINES
from forerun.lab.domains import run_domains
from forerun.lab.paired import Asked
from forerun.lab.peers import arm, environment
from forerun.lab.peers.arm import PEERS, baseline_arms, check_baselines, peer_arm
from forerun.lab.run import Run
from forerun.lab.sample import digest

PYTHON = Path(sys.executable)


@pytest.fixture
def peer(bench, fake, monkeypatch):
    monkeypatch.setattr(arm, "PAUSE_S", 0.0)
    with baseline_arms(["transformers"], bench, PYTHON) as (made,):
        yield made


def test_the_reply_is_a_sample_by_the_peers_own_clock(bench, peer):
    sample = peer.answer([[5, 6, 7]], {"max_tokens": 4, "ignore_eos": True})
    assert (sample.emitted, sample.tokens, sample.passes, sample.drafted) == (4, 3, 4, 0)
    assert (sample.first_s, sample.decode_s, sample.cpu_s) == (0.25, 0.5, 0.75)
    assert sample.ms_per_token == pytest.approx(500 / 3)
    assert sample.digest == digest([[7, 7, 7, 7]])
    assert sample.texts == (bench.base.words.decode([7, 7, 7, 7]),)


def test_it_ends_where_we_do_and_stays_within_the_context(bench, peer):
    end = min(bench.base.eos_ids)
    assert peer.answer([[5, 6]], {"max_tokens": 9}).digest == digest([[6, end]])
    room = bench.target.spec.max_len
    assert peer.answer([[7] * (room - 2)], {"max_tokens": 9, "ignore_eos": True}).emitted == 2


def test_what_it_is_and_what_it_reads_is_kept(bench, peer):
    assert peer.facts["threads"] == bench.subject.threads
    assert peer.facts["context"] == bench.target.spec.max_len
    assert peer.facts["weights"] == "f32"
    assert str(peer) == "transformers (echo 1.2), f32 weights"


@pytest.mark.parametrize(
    ("prompts", "params"),
    [
        ([[1], [2]], {"max_tokens": 4}),
        ([[1]], {}),
        ([[1]], {"max_tokens": 4, "temperature": 0.5}),
        ([[1]], {"max_tokens": 4, "stop": ("x",)}),
        ([[1]], {"max_tokens": 4, "logit_bias": {3: 5.0}}),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(peer, prompts, params):
    with pytest.raises(SpecError, match="transformers answers one prompt greedily, with max_tokens and ignore_eos"):
        peer.answer(prompts, params)


def test_the_process_ends_with_the_block_however_it_ends(bench, fake):
    pids = []

    def interrupted():
        with baseline_arms(["bare", "transformers"], bench, PYTHON) as (bare, made):
            assert (bare.name, made.name) == ("bare", "transformers")
            pids.append(made.facts["pid"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_baselines_take_part_in_domains(bench, peer, work):
    asked = Asked({"max_tokens": 6, "ignore_eos": True})
    figures, _ = run_domains(bench, Run("domains", None, {}), ["ngram"], [work], asked, baselines=[peer])
    (found,) = figures["workloads"].values()
    assert set(found["arms"]) == {"plain", "ngram", "transformers"}
    assert found["arms"]["transformers"]["ms_per_token"] == pytest.approx(100)
    assert found["arms"]["transformers"]["speedup"]["value"] < 0.5


@pytest.mark.parametrize(
    ("names", "params", "hint"),
    [
        (["llamacpp"], {}, "did you mean 'llama.cpp'"),
        (["bare"], {"temperature": 1.0}, "greedily"),
        (["bare", "transformers"], {}, "scripts/peers"),
    ],
)
def test_names_are_checked_before_anything_is_loaded(monkeypatch, tmp_path, names, params, hint):
    monkeypatch.delenv(environment.VARIABLE, raising=False)
    monkeypatch.setattr(arm, "interpreter", lambda: environment.interpreter(tmp_path))
    with pytest.raises(SpecError, match=hint):
        check_baselines(names, params)
    assert check_baselines(["bare"], {}) is None


def test_an_unknown_peer_and_another_device(bench):
    with pytest.raises(SpecError, match="did you mean 'transformers'"):
        peer_arm("transformer", bench, PYTHON)
    spec = replace(bench.target.spec, device="cuda")
    there = Bench(bench.base, bench.subject)
    target = type("There", (), {"spec": spec})()
    there.base = replace(bench.base, target=target)
    with pytest.raises(SpecError, match="on the CPU, got the device cuda"):
        peer_arm("transformers", there, PYTHON)


def test_the_names_that_help_lists_are_those_there_are():
    assert set(BASELINES) == {"bare", *PEERS}


@pytest.mark.real
def test_transformers_itself_says_what_we_say(models):
    """In float32 nothing is rounded otherwise as far as a tiny model goes, so the very tokens must be ours."""
    try:
        python = environment.interpreter()
    except SpecError as error:
        pytest.skip(str(error))
    bench = Bench.open(Config(str(models["folder"]), runtime="torch", threads=1))
    with baseline_arms(["bare", "transformers"], bench, python) as (ours, theirs):
        for params in ({"max_tokens": 12}, {"max_tokens": 12, "ignore_eos": True}):
            for ids in ([5, 6, 7], [9] * 40):
                a, b = ours.answer([ids], params), theirs.answer([ids], params)
                assert (a.digest, a.emitted, a.tokens) == (b.digest, b.emitted, b.tokens)
                assert b.decode_s > 0
                assert b.cpu_s >= 0
        assert "5." in theirs.facts["transformers"]


@pytest.mark.real
def test_llama_itself_says_what_we_say():
    """From the same file, for as long as rounding lets it: the short answer that both end themselves."""
    from forerun.weights.pull import resolve

    try:
        python, _ = environment.interpreter(), resolve("smollm2")
    except Exception as error:
        pytest.skip(f"no peers or no model: {error}")
    bench = Bench.open(Config("smollm2", threads=1, max_len=512))
    ids = bench.tokens([{"role": "user", "content": "What is 2 plus 3? Answer in one short sentence."}])
    with baseline_arms(["bare", "llama.cpp"], bench, python) as (ours, theirs):
        a, b = (side.answer([ids], {"max_tokens": 24}) for side in (ours, theirs))
        assert (a.texts, a.digest, a.tokens) == (b.texts, b.digest, b.tokens)
        assert 0 < b.decode_s < b.decode_s + b.first_s
        assert 0 < b.cpu_s < 64 * b.decode_s
        go_on = theirs.answer([ids], {"max_tokens": 24, "ignore_eos": True})
        assert (go_on.emitted, go_on.tokens) == (24, 23)
