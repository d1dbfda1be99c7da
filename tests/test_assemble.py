"""From names to engines, on tiny models in real files: identity across formats, runtimes, drafters and verifiers.

A test that takes `runtime` runs on both of our own.

The grid is named and small here; `make test-full` runs all of it.
"""

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch
from safetensors.torch import load_file, save_file

import forerun
from forerun.assemble import Config
from forerun.core.errors import CapacityError, LoadError, LossyError, SpecError
from forerun.native import ext
from forerun.testing.tiny import REAL, SPECIALS, Tiny, write_folder, write_gguf

OWN = ["torch", *([] if ext.why_not() else ["native"])]
PROMPTS = ["abcabcabcab", "Hello, hello, hello", "x", "The cat. The dog. The"]
DRAFTERS = {
    "ngram": "ngram",
    "ngram, eager": "ngram:min=1,factor=8,depth=6",
    "suffix": "suffix",
    "suffix tree": "suffix:width=3,nodes=12",
    "prediction": "prediction",
    "model": "model:path={draft}",
    "model, likeliest": "model:path={draft},law=chosen",
    "model tree, likeliest": "model:path={draft},law=chosen,width=2,depth=3,nodes=8",
    "model tree": "model:path={draft},width=2,depth=3,nodes=8",
    "identity model": "model:path={folder},depth=4",
    "skip": "skip:layers=1",
    "cascade": "first_of:of=prediction+ngram+skip",
}
SAMPLED = {
    "sampled chain": "model:path={draft},law=sampled",
    "sampled tree": "model:path={draft},law=sampled,width=2,depth=3",
    "distinct tree": "model:path={draft},law=distinct,width=2,depth=3",
}
PARAMS = {
    "greedy": {},
    "sampled": {"temperature": 0.9, "seed": 7},
    "nucleus": {"temperature": 1.2, "top_p": 0.8, "seed": 3},
    "penalised": {"temperature": 0.7, "repetition_penalty": 1.3, "frequency_penalty": 0.5, "seed": 1},
    "biased": {"logit_bias": {97: 5.0}, "presence_penalty": 1.0},
}
PREDICTION = "abcabcabcabcabcabc"


def answers(models, model, drafter, params, prompts=PROMPTS, **options):
    with forerun.load(str(models[model]), drafter.format(**models), **options) as engine:
        results = engine.generate_batch(prompts, max_tokens=24, ignore_eos=True, prediction=PREDICTION, **params)
        target = engine.parts.target
        if hasattr(target, "pool"):
            target.pool.check_integrity()
            assert target.usage.used == 0
    return [result.token_ids for result in results], results


@pytest.fixture(scope="module")
def plain(models, runtime):
    """Plain decoding's answers, by parameters."""
    return {name: answers(models, "folder", "none", params, runtime=runtime)[0] for name, params in PARAMS.items()}


SMOKE = [
    *itertools.product(DRAFTERS, ["greedy", "sampled"]),
    ("ngram", "penalised"),
    ("model tree", "nucleus"),
    ("model tree", "penalised"),
    ("suffix tree", "biased"),
    ("identity model", "penalised"),
]
REST = [pair for pair in itertools.product(DRAFTERS, PARAMS) if pair not in SMOKE]


@pytest.mark.parametrize(
    ("drafter", "params"), [*SMOKE, *(pytest.param(*pair, marks=pytest.mark.full) for pair in REST)]
)
def test_chosen_drafts_give_the_text_of_plain_decoding(models, plain, runtime, drafter, params):
    got, results = answers(models, "folder", DRAFTERS[drafter], PARAMS[params], runtime=runtime)
    assert got == plain[params]
    assert all(result.stats.drafted >= result.stats.accepted for result in results)


@pytest.mark.parametrize("drafter", SAMPLED)
def test_sampled_drafts_are_chosen_at_temperature_zero(models, plain, runtime, drafter):
    assert answers(models, "folder", SAMPLED[drafter], {}, runtime=runtime)[0] == plain["greedy"]


def exact(path, runtime):
    """A draft model in the numbers of its file, whatever its forwards cost."""
    return f"model:path={path},level_cost=0" + (",weights=f32" if runtime == "native" else "")


def test_an_identity_draft_is_always_accepted(models, runtime):
    """Failure case 7, 128: the same model in both roles, the second time out of the prefix memory."""
    with forerun.load(str(models["folder"]), f"{exact(models['folder'], runtime)},depth=4", runtime=runtime) as engine:
        for params in ({}, {"temperature": 0.8, "seed": 5}):
            for _ in range(2):
                stats = engine.generate(list(range(40, 72)), max_tokens=11, ignore_eos=True, **params).stats
                if not params:
                    assert (stats.acceptance, stats.target_passes) == (1.0, 3)
        assert stats.reused > 0


def test_an_identity_draft_that_is_sampled_is_always_accepted(models, runtime):
    drafter = f"{exact(models['folder'], runtime)},depth=4,law=sampled"
    with forerun.load(str(models["folder"]), drafter, runtime=runtime) as engine:
        stats = engine.generate("abc", max_tokens=41, ignore_eos=True, temperature=1.0, top_p=0.9, seed=3).stats
        assert stats.acceptance == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("verify", ["match", "tree", "traversal", "reference", "token", "block", "greedy", "auto"])
def test_every_lossless_verifier_keeps_the_greedy_text(models, plain, runtime, verify):
    assert answers(models, "folder", "ngram:min=1,factor=8", {}, verify=verify, runtime=runtime)[0] == plain["greedy"]


@pytest.mark.parametrize("params", ["greedy", "sampled"])
def test_formats_hold_the_same_model(models, plain, runtime, params):
    assert answers(models, "gguf", "ngram", PARAMS[params], runtime=runtime)[0] == plain[params]


@pytest.mark.parametrize(("drafter", "params"), [("none", "greedy"), ("ngram", "greedy"), ("model tree", "sampled")])
def test_runtimes_say_the_same(models, plain, drafter, params):
    drafter = {"none": "none", **DRAFTERS}[drafter]
    assert answers(models, "folder", drafter, PARAMS[params], runtime="hf")[0] == plain[params]


@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3"])
def test_families_speculate_without_a_difference(tmp_path, runtime, family):
    extra = {"sliding_window": 16} if family == "mistral" else {}
    tiny = Tiny(family, extra=extra, tied=family != "qwen3")
    here = {"model": write_folder(tmp_path / "m", tiny), "gguf": write_gguf(tmp_path / "m.gguf", tiny)}
    expected = answers(here, "model", "none", {}, runtime=runtime)[0]
    tree = "suffix:width=2,nodes=8,min_match=1,factor=4"
    assert answers(here, "model", tree, {}, runtime=runtime)[0] == expected
    if not extra:
        assert answers(here, "gguf", "ngram", {}, runtime=runtime)[0] == expected


def test_half_precision_runs(models, runtime):
    got, _ = answers(models, "folder", "ngram", {}, dtype="bfloat16", runtime=runtime)
    assert [len(ids) for ids in got] == [24] * len(PROMPTS)


def test_memory_so_tight_that_preemption_happens(models, plain, runtime):
    got, results = answers(models, "folder", "ngram", {}, max_len=64, kv_tokens=64, runtime=runtime)
    assert got == plain["greedy"]
    assert sum(result.stats.preempted for result in results) > 0


def test_chat_turns_reuse_their_common_beginning(models, runtime):
    messages = [{"role": "user", "content": "Tell me of the sea, and of ships, and of storms."}]
    with forerun.load(str(models["folder"]), "ngram", runtime=runtime) as engine:
        first = engine.generate(engine.chat(messages), max_tokens=20, ignore_eos=True)
        messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And then?"}]
        again = engine.generate(engine.chat(messages), max_tokens=20, ignore_eos=True)
        assert again.stats.reused >= 48
        with forerun.load(str(models["folder"]), reuse=False, runtime=runtime) as fresh:
            assert fresh.generate(engine.chat(messages), max_tokens=20, ignore_eos=True).token_ids == again.token_ids


def test_siblings_read_their_prompt_once(models, runtime):
    with forerun.load(str(models["folder"]), runtime=runtime) as engine:
        result = engine.generate("p" * 100, n=4, temperature=1.0, seed=1, max_tokens=8, ignore_eos=True)
        assert sum(choice.stats.prefilled for choice in result.choices) < 160
        assert [choice.stats.reused >= 96 for choice in result.choices] == [False, True, True, True]


def test_the_seed_of_a_choice_is_the_same_alone_and_among_siblings(models, runtime):
    with forerun.load(str(models["folder"]), "ngram:min=1", runtime=runtime) as engine:
        params = {"temperature": 1.0, "seed": 9, "max_tokens": 12, "ignore_eos": True}
        many = [choice.token_ids for choice in engine.generate("ab", n=3, **params).choices]
        assert engine.generate("ab", n=1, **params).token_ids == many[0]
        assert len({tuple(ids) for ids in many}) == 3


BAD = {
    "an unknown model": ({"model": "smolm2"}, SpecError, "smollm2"),
    "a missing path": ({"model": "./nowhere"}, SpecError, "exist"),
    "an unknown drafter": ({"drafter": "ngrams"}, SpecError, "did you mean 'ngram'"),
    "an unknown drafter option": ({"drafter": "ngram:mim=2"}, SpecError, "did you mean 'min'"),
    "a wrong value": ({"drafter": "ngram:min=two"}, SpecError, "whole number"),
    "a fraction": ({"drafter": "ngram:depth=1.9"}, SpecError, "depth"),
    "min over max": ({"drafter": "ngram:min=5,max=3"}, SpecError, "max"),
    "a negative depth": ({"drafter": "ngram:depth=-1"}, SpecError, "depth"),
    "an option that this drafter does not heed": ({"drafter": "ngram:width=3"}, SpecError, "width"),
    "an option of no use": ({"drafter": "none:depth=3"}, SpecError, "depth"),
    "no draft model": ({"drafter": "model"}, SpecError, "path"),
    "a missing draft model": ({"drafter": "model:path=./nowhere"}, SpecError, "nowhere"),
    "an unknown verifier": ({"verify": "traverse"}, SpecError, "did you mean 'traversal'"),
    "an unknown option": ({"dtipe": "float32"}, SpecError, "did you mean 'dtype'"),
    "an unknown dtype": ({"dtype": "float8"}, SpecError, "float32"),
    "an unknown device": ({"device": "tpu"}, SpecError, "device"),
    "a depth that is a truth": ({"drafter": "ngram:depth=true"}, SpecError, "depth"),
    "a depth beyond all use": ({"drafter": "ngram:depth=1000000000"}, SpecError, "from 0 to 256"),
    "a depth that is misspelt": ({"drafter": "ngram:dept=4"}, SpecError, "did you mean 'depth'"),
    "more memory than there is": ({"kv_tokens": 10**13}, CapacityError, "10000000000000 tokens.*MiB"),
    "more memory than can be counted": ({"kv_tokens": 10**30}, CapacityError, "tokens.*MiB"),
    "no memory": ({"kv_tokens": 0}, CapacityError, "kv_tokens"),
    "a step that reads nothing": ({"chunk": 0}, SpecError, "chunk"),
    "a batch of none": ({"max_batch": 0}, SpecError, "max_batch"),
    "a context that the other runtime has not": ({"max_len": 100000, "runtime": "hf"}, SpecError, "max_len"),
    "memory for less than a context": ({"kv_tokens": 32, "max_len": 64, "runtime": "hf"}, CapacityError, "max_len 64"),
    "a cascade's part with its own batch limit": (
        {"drafter": "first_of:of=prediction+ngram[up_to=2]"},
        SpecError,
        "up_to",
    ),
    "a tree wider than its plan": ({"drafter": "eagle3:path=x,tree=eagle-25,width=1"}, SpecError, "4 children"),
    "a tree in a cascade of chains": (
        {"drafter": "first_of:of=ngram+eagle3[tree=eagle-25],width=1"},
        SpecError,
        "4 children",
    ),
    "a cascade of one": ({"drafter": "first_of:of=ngram"}, SpecError, "first_of"),
    "a cascade with a stranger": ({"drafter": "first_of:of=ngram+gram"}, SpecError, "gram"),
    "too many skipped layers": ({"drafter": "skip:layers=2"}, SpecError, "layers"),
    "a context the model has not": ({"max_len": 100000}, SpecError, "max_len"),
    "no threads": ({"threads": 0}, SpecError, "threads"),
    "an unknown weight format": ({"weights": "q5"}, SpecError, "q4"),
    "an unknown memory format": ({"kv": "f16"}, SpecError, "bf16"),
    "weights for a runtime that has none": ({"runtime": "torch", "weights": "int8"}, SpecError, "weights int8.*dtype"),
    "memory for a runtime that has none": ({"runtime": "hf", "kv": "int8"}, SpecError, "kv int8.*dtype"),
    "weights on another device": ({"device": "cuda", "weights": "int8"}, SpecError, "device cuda"),
    "weights and a half precision": ({"dtype": "float16", "weights": "int8"}, SpecError, "float16"),
    "foreseen drafts for a rule of rejection": (
        {"drafter": "model:path={draft}", "verify": "block"},
        LossyError,
        "foreseen",
    ),
    "trees for a chain rule": ({"drafter": "suffix:width=2", "verify": "block"}, LossyError, "block"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_one_clear_line(models, name):
    changes, error, hint = BAD[name]
    options = {"model": str(models["folder"]), "drafter": "none", **changes}
    options["drafter"] = options["drafter"].format(**models)
    with pytest.raises(error, match=hint) as caught:
        forerun.load(**options)
    assert "\n" not in str(caught.value)


def test_138_depth_zero_is_off_and_a_text_is_read_as_a_number(models):
    for depth, drafted in ((0, False), (4, True)):
        _, results = answers(models, "folder", f"ngram:min=1,factor=8,depth={depth}", {}, PROMPTS[:1])
        assert bool(results[0].stats.drafted) == drafted


def test_139_options_reach_either_runtime(models):
    for runtime in (*OWN, "hf"):
        with forerun.load(str(models["folder"]), runtime=runtime, kv_tokens=128, max_len=96, reuse=False) as engine:
            target = engine.parts.target
            usage = target.usage
            assert target.spec.max_len == 96
            assert usage.free == (128 if runtime == "hf" else 8), "blocks, or tokens"
            engine.generate("x" * 40, max_tokens=2)
            assert target.usage == usage, "nothing is kept without reuse"


@pytest.mark.parametrize("target", [*OWN, "hf"])
@pytest.mark.parametrize("end", [65, 66, 67, 259])
def test_35_every_source_s_end_tokens_end(tmp_path, target, end):
    """The config names one, the generation config that and another, the tokenizer its own; 67 is nobody's."""
    folder = write_folder(tmp_path / "m", Tiny(extra={"eos_token_id": 65}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [65, 66]}))
    for drafter in ("none", f"model:path={folder}"):
        with forerun.load(str(folder), drafter, runtime=target) as engine:
            result = engine.generate("abc", max_tokens=3, logit_bias={end: 100})
        assert (len(result.tokens), result.finish_reason) == ((3, "length") if end == 67 else (1, "stop"))


def bos_folder(path, add_bos, template):
    folder = write_folder(path)
    settings = {"bos_token": SPECIALS[1], "eos_token": SPECIALS[2], "add_bos_token": add_bos, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return str(folder)


def test_65_there_is_one_beginning_of_text(tmp_path):
    own = "{{ bos_token }}[U]{{ messages[0]['content'] }}"
    with forerun.load(bos_folder(tmp_path / "a", True, own), "ngram") as engine:
        chat, raw = engine.chat("Hi"), engine.generate("Hi", max_tokens=1)
        assert chat == [258, *b"[U]Hi"]
        assert engine.generate(chat, max_tokens=1).usage.prompt_tokens == 6
        assert raw.usage.prompt_tokens == 3
    two = f"{SPECIALS[1]}{SPECIALS[0]}{{{{ messages[0]['content'] }}}}"
    with forerun.load(bos_folder(tmp_path / "b", False, two), "ngram") as engine:
        assert engine.chat("Hi") == [258, 257, *b"Hi"]
        assert engine.generate("Hi", max_tokens=1).usage.prompt_tokens == 2


def test_132_an_empty_prompt_starts_from_the_beginning_of_text_or_is_refused(tmp_path):
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    for bos in (True, False):
        folder = bos_folder(tmp_path / str(bos), bos, template)
        with forerun.load(folder, f"model:path={folder}") as engine:
            bad = [[], [[]], engine.chat("")] + ([] if bos else [""])
            for prompt in bad:
                with pytest.raises(SpecError, match=r"empty|vocabulary"):
                    engine.generate(prompt)
            if bos:
                assert engine.generate("", max_tokens=2, ignore_eos=True).usage.prompt_tokens == 1
                results = engine.generate_batch([""], max_tokens=2, ignore_eos=True)
                assert results[0].usage.completion_tokens == 2
            assert not engine.busy
            assert engine.generate("a", max_tokens=2, ignore_eos=True).usage.completion_tokens == 2


@pytest.mark.parametrize("prompt", [None, 5, {"a": 1}, 1.5])
def test_132_what_is_no_prompt_is_refused(models, prompt):
    with forerun.load(str(models["folder"])) as engine, pytest.raises(SpecError, match="prompt"):
        engine.generate(prompt)


def loud(path, vocab):
    """One model with `vocab` rows in its tables; a row of padding or its negative is always likelier than any token."""
    folder = write_folder(path, Tiny(tied=False, vocab=vocab))
    tensors = Tiny(tied=False, vocab=272).tensors()
    head = tensors["lm_head.weight"]
    head[REAL] = 50 * torch.randn(head.shape[1], generator=torch.Generator().manual_seed(1))
    head[REAL + 1] = -head[REAL]
    tensors |= {name: tensors[name][:vocab].clone() for name in ("lm_head.weight", "model.embed_tokens.weight")}
    save_file(tensors, folder / "model.safetensors")
    return str(folder)


@pytest.mark.parametrize("on", [*OWN, "hf"])
@pytest.mark.parametrize(("target", "draft"), [(272, 264), (264, 272)])
def test_60_padded_ids_are_never_said_nor_proposed(tmp_path, target, draft, on):
    """The tables differ in size, the tokenizers do not; both models would like padding best."""
    paths = loud(tmp_path / "target", target), loud(tmp_path / "draft", draft)
    for params in ({}, {"temperature": 1.0, "seed": 3}):
        told = {**params, "max_tokens": 16, "ignore_eos": True}
        with forerun.load(paths[0], runtime=on) as engine:
            plain = engine.generate("abc", **told).token_ids
        with forerun.load(paths[0], exact(paths[1], on), runtime=on) as engine:
            drafter, seen = engine.parts.drafter, []
            inner = drafter.draft
            drafter.draft = lambda *args: seen.append(inner(*args)) or seen[-1]
            result = engine.generate("abc", **told)
        assert result.token_ids == plain
        assert all(token < REAL for token in plain)
        assert all(token < REAL for made in seen for tree in made.trees for token in tree.tokens)
        assert params or result.stats.acceptance == 1.0


def test_60_a_padded_vocabulary_is_not_another_one(models, tmp_path):
    draft = write_folder(tmp_path / "padded", Tiny(layers=1, seed=5, vocab=300))
    expected = answers(models, "folder", "none", {})[0]
    assert answers(models, "folder", f"model:path={draft}", {})[0] == expected
    assert all(token < REAL for ids in expected for token in ids)


@pytest.mark.skipif(bool(ext.why_not()), reason="the compiled extension is not there")
def test_a_draft_model_s_weights_are_its_own(models):
    """int8 for a folder's floats, what a file holds, or what is asked for; the target's are its own affair."""
    folder, file = str(models["folder"]), str(models["gguf"])
    for options, target in (({}, "f32"), ({"weights": "bf16"}, "bf16"), ({"dtype": "float32"}, "f32")):
        for spec, want in ((folder, {"int8"}), (f"{folder},weights=bf16", {"bf16"}), (file, {"f32"})):
            with forerun.load(folder, f"model:path={spec}", runtime="native", **options) as engine:
                assert set(engine.parts.drafter.target.runner.packed.formats) == want
                assert set(engine.parts.target.runner.packed.formats) == {target}
    with pytest.raises(SpecError, match="weights of a draft model"):
        forerun.load(folder, f"model:path={folder},weights=int7")
    with pytest.raises(SpecError, match="option of the native runtime"):
        forerun.load(folder, f"model:path={folder},weights=int8", runtime="torch")


def test_a_draft_model_s_price_is_its_share_of_the_target_s_bytes(models, runtime):
    """Of sizes alike each further level costs a whole forward and is never worth it; said to be free, all are grown."""
    options = {"max_tokens": 12, "ignore_eos": True}
    drafted = {}
    for price in ("", ",level_cost=0", ",level_cost=1"):
        spec = exact(models["folder"], runtime).replace(",level_cost=0", "") + f",depth=4{price}"
        with forerun.load(str(models["folder"]), spec, runtime=runtime) as engine:
            bytes_read = engine.parts.target.spec.weight_bytes
            assert engine.parts.drafter.target.spec.weight_bytes == bytes_read > 0
            drafted[price] = len(engine.generate("abc", **options).stats.drafted_at)
    assert drafted == {"": 1, ",level_cost=0": 4, ",level_cost=1": 1}
    with pytest.raises(SpecError, match="level_cost must be a number"):
        forerun.load(str(models["folder"]), f"model:path={models['folder']},level_cost=-1")


def test_a_draft_model_with_another_tokenizer_is_refused_and_named(models, tmp_path):
    other = write_folder(tmp_path / "other")
    text = (other / "tokenizer.json").read_text()
    (other / "tokenizer.json").write_text(text.replace('"a": 97', '"aa": 97'))
    with pytest.raises(SpecError, match=r"tokenizer.*id 97 is 'aa' there and 'a' here"):
        forerun.load(str(models["folder"]), f"model:path={other}")


def test_69_a_draft_model_with_a_shorter_context_stops_drafting(models, tmp_path, runtime):
    draft = write_folder(tmp_path / "short", Tiny(seed=0, max_len=16))
    with forerun.load(str(models["folder"]), f"model:path={draft},depth=4", max_len=200, runtime=runtime) as engine:
        result = engine.generate(list(range(40, 52)), max_tokens=30, ignore_eos=True)
    with forerun.load(str(models["folder"]), runtime=runtime) as engine:
        assert engine.generate(list(range(40, 52)), max_tokens=30, ignore_eos=True).token_ids == result.token_ids
    assert 0 < result.stats.drafted <= 8


def test_a_folder_without_a_tokenizer_says_so(tmp_path):
    with pytest.raises(LoadError, match=r"tokenizer\.json"):
        forerun.load(str(write_folder(tmp_path / "m", tokenizer=False)))


def test_a_path_is_a_model(models):
    with forerun.load(models["folder"]) as engine:
        assert engine.parts.target.spec.name == "folder"


def test_foreseen_drafts_stand_more_often_than_the_likeliest_and_keep_the_seed_s_text(tmp_path, runtime):
    """The draft model is a near copy of a flat target, so that at temperature 1.5 the likeliest token seldom comes."""
    tiny = Tiny(sharpness=2.0, max_len=512)
    target, draft = write_folder(tmp_path / "target", tiny), write_folder(tmp_path / "draft", tiny)
    weights = load_file(draft / "model.safetensors")
    noise = torch.Generator().manual_seed(0)
    moved = {k: v + 0.1 * v.std() * torch.randn(v.shape, generator=noise) for k, v in weights.items()}
    save_file(moved, draft / "model.safetensors")
    params = {"temperature": 1.5, "seed": 3, "max_tokens": 200, "ignore_eos": True}
    with forerun.load(str(target), runtime=runtime) as engine:
        plain = engine.generate("The sea", **params)
    tau = {}
    for law in ("chosen", "foreseen"):
        with forerun.load(str(target), f"model:path={draft},law={law},depth=4,level_cost=0", runtime=runtime) as engine:
            result = engine.generate("The sea", **params)
        assert result.token_ids == plain.token_ids
        tau[law] = result.stats.tau
    assert tau["foreseen"] > 1.3 * tau["chosen"]


@pytest.mark.skipif(bool(ext.why_not()), reason="the compiled extension is not there")
def test_a_native_engine_draws_natively(tmp_path):
    from forerun.native.vocab import NativeVocabulary

    with forerun.load(write_folder(tmp_path / "model", Tiny()), runtime="native") as engine:
        assert isinstance(engine.parts.vocabulary, NativeVocabulary)


@pytest.mark.parametrize("runtime", ["torch", "native"])
def test_212_engines_over_one_model_take_turns_and_keep_their_taps(models, runtime):
    """Before, the second engine's taps were brought to the first's head."""
    from forerun.assemble import engine_over, foundation
    from forerun.testing.heads import random_config, random_head
    from forerun.train.made import MadeHead

    if runtime == "native" and ext.why_not():
        pytest.skip("the compiled extension is not there")
    base = foundation(Config(str(models["folder"]), runtime=runtime))
    prompt, alone = "one two three one two three", None
    rows, width = base.target.runner.facts.vocab_rows, base.target.spec.hidden_size
    with ExitStack() as stack:
        engines = [engine_over(base, "none")]
        for kind in ("eagle3", "medusa"):
            head = random_head(random_config(kind, rows, width), seed=3)
            engines.append(stack.enter_context(MadeHead(head).serving(base)))
        for engine in (*engines, *engines[::-1], *engines):
            found = engine.generate(prompt, max_tokens=12)
            alone = alone or found.token_ids
            assert found.token_ids == alone
            assert found.stats.dropped == 0
            assert bool(found.stats.drafted) == (engine is not engines[0])


@pytest.mark.parametrize("elsewhere", [False, True])
def test_212_a_second_engine_is_refused_while_the_first_answers(models, elsewhere):
    from forerun.assemble import engine_over, foundation

    base = foundation(Config(str(models["folder"]), runtime="torch"))
    first, second = engine_over(base, "ngram"), engine_over(base, "none")

    def here(call, *args):
        if not elsewhere:
            return call(*args)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(call, *args).result()

    text = second.generate("one two", max_tokens=8).token_ids
    request = first.add("one two", max_tokens=8)
    for refused in (lambda: here(second.generate, "three"), lambda: here(engine_over, base, "skip:layers=1")):
        with pytest.raises(SpecError, match=r"another engine \(ngram\).*close that one first, or give this one"):
            refused()
    first.step()
    assert not second.busy
    while not first.finished(request):
        first.step()
    assert second.generate("one two", max_tokens=8).token_ids == first.collect(request).token_ids == text
    first.add("one two")
    first.close()
    assert second.generate("one two", max_tokens=8).token_ids == text


def test_212_engines_apart_answer_at_once_in_threads_as_each_alone(models, runtime):
    """Heads with taps of their own over one model's weights: text, drafts and counts are those of each alone."""
    from forerun.assemble import engine_over, foundation
    from forerun.testing.heads import random_config, random_head
    from forerun.train.made import MadeHead

    base = foundation(Config(str(models["folder"]), runtime=runtime, costs="free"))
    rows, width = base.target.runner.facts.vocab_rows, base.target.spec.hidden_size
    heads = [MadeHead(random_head(random_config(kind, rows, width), seed=3)) for kind in ("eagle3", "medusa", "mtp")]
    prompts = ["one two three one two three", "three two", "one"]

    def answered(serving):
        with serving as engine:
            done = engine.generate_batch(prompts, max_tokens=16)
        return [(one.token_ids, one.stats.drafted, one.stats.accepted, one.stats.target_passes) for one in done]

    alone = [answered(engine_over(base, "ngram:min=1")), *(answered(head.serving(base)) for head in heads)]
    assert all(sum(counts[1] for counts in one) for one in alone)
    with ThreadPoolExecutor(4) as pool:
        apart = [base.apart(512) for _ in range(8)]
        kinds = [lambda at: engine_over(at, "ngram:min=1"), *(head.serving for head in heads)]
        calls = [pool.submit(answered, kinds[i % 4](at)) for i, at in enumerate(apart)]
        assert [call.result() for call in calls] == [*alone, *alone]
    first = engine_over(base, "none")
    first.add("one")
    first.step()
    assert answered(engine_over(base.apart(), "ngram:min=1")) == alone[0], "while another engine answers"


def test_several_engines_stand_on_one_model_in_turn(models):
    from forerun.assemble import engine_over, foundation

    base = foundation(Config(str(models["folder"]), reuse=False))
    prompt = "one two three one two three"
    alone = forerun.load(str(models["folder"])).generate(prompt, max_tokens=12).token_ids
    engines = [engine_over(base, spec) for spec in ("none", "ngram", "skip:layers=1")]
    assert len({id(engine.parts.target) for engine in engines}) == 1
    for engine in (*engines, *engines):
        assert engine.generate(prompt, max_tokens=12).token_ids == alone
    shared = engine_over(base, "skip:layers=1,depth=1", engines[2].parts.drafter)
    assert shared.parts.drafter is engines[2].parts.drafter
    assert shared.generate(prompt, max_tokens=12).token_ids == alone


@pytest.mark.parametrize("drafter", ["none", "ngram:min=1"])
@pytest.mark.parametrize("stop", ["<|im_start|>", ["x", "<|endoftext|>"]])
def test_206_a_stop_text_that_is_a_control_token_ends_the_answer(models, drafter, stop):
    id = 258 if stop == "<|im_start|>" else 257
    with forerun.load(str(models["folder"]), drafter) as engine:
        result = engine.generate("abab", stop=stop, logit_bias={id: 100.0}, max_tokens=5)
        assert (result.token_ids, result.text, result.finish_reason) == ([id], "", "stop")
        with pytest.raises(SpecError, match="holds the control token"):
            engine.generate("ab", stop="\n<|im_start|>", max_tokens=5)
