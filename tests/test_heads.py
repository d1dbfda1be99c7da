"""Heads from folders beside whole engines: the text is plain decoding's on either runtime, for every kind."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import forerun
from forerun.assemble import named
from forerun.core.errors import LoadError, SpecError
from forerun.models.heads.config import FORMATS
from forerun.models.heads.formats import own
from forerun.native import ext
from forerun.testing.heads import random_config, random_head
from forerun.testing.tiny import Tiny, write_folder

VOCAB, WIDTH = 264, 32
RUNTIMES = {"torch": [], "native": [pytest.mark.skipif(ext.extension() is None, reason="not compiled")]}
KINDS = ("eagle", "eagle3", "p-eagle", "mtp", "medusa")
SIZES = {"intermediate_size": 40, "heads": 4, "kv_heads": 2, "head_dim": 8}
PROMPTS = ["tell me about the sea", "1, 2, 3, 4", "to be or not to be, that is the question: to be or", "a"]


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def model(request, tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("model"), Tiny(hidden=WIDTH, tied=request.param, sharpness=4.0))


def folder_of(tmp_path, kind, draft_vocab=120, **changes):
    sizes = {} if kind == "medusa" else SIZES
    head = random_head(
        random_config(kind, VOCAB, WIDTH, VOCAB if kind == "eagle" else draft_vocab, **sizes, **changes), 5
    )
    own.write(head, tmp_path / kind, compact=False)
    return tmp_path / kind


def in_turn(names, cases):
    """Each case on either runtime, tied and untied; in the smoke grid it is tied on the one and untied on the other."""
    return pytest.mark.parametrize(
        (*names, "runtime", "model"),
        [
            pytest.param(*case, runtime, tied, marks=[*needs, *([] if (i + j + tied) % 2 else [pytest.mark.full])])
            for i, case in enumerate(cases)
            for j, (runtime, needs) in enumerate(RUNTIMES.items())
            for tied in (True, False)
        ],
        indirect=["model"],
    )


@in_turn(["kind"], product(KINDS))
def test_the_text_is_plain_decoding_s(kind, runtime, model, tmp_path):
    options = {"runtime": runtime, "kv_tokens": 2048, "reuse": False, "costs": "free"}
    asks = [{"temperature": 0.0}, {"temperature": 0.9, "seed": 7}, {"temperature": 1.0, "top_p": 0.8, "seed": 8}]
    path = folder_of(tmp_path, kind)
    with forerun.load(model, **options) as engine:
        plain = [[r.choices[0].token_ids for r in engine.generate_batch(PROMPTS, max_tokens=24, **ask)] for ask in asks]
    for plan in ("", ",width=1", ",tree=eagle-25", ",law=chosen,depth=3,nodes=6,width=3,confidence=0.1"):
        with forerun.load(model, f"{kind}:path={path}{plan}", **options) as engine:
            drafted = 0
            for ask, want in zip(asks, plain, strict=True):
                results = engine.generate_batch(PROMPTS, max_tokens=24, **ask)
                assert [r.choices[0].token_ids for r in results] == want, (kind, plan, ask)
                drafted += sum(r.choices[0].stats.drafted for r in results)
            assert drafted > 0


@in_turn(["kind", "cascade"], product(["eagle3", "p-eagle"], ["first_of", "mixed"]))
def test_a_lookup_and_a_head_in_one_request(runtime, cascade, kind, model, tmp_path):
    path = folder_of(tmp_path, kind)
    options = {"runtime": runtime, "kv_tokens": 2048, "reuse": False, "costs": "free"}
    asks = [{"temperature": 0.0}, {"temperature": 0.9, "seed": 7}]
    with forerun.load(model, **options) as engine:
        want = [[r.choices[0].token_ids for r in engine.generate_batch(PROMPTS, max_tokens=30, **ask)] for ask in asks]
    for law in ("chosen", "foreseen"):
        with forerun.load(
            model, f"{cascade}:of=ngram[min=1]+{kind}[path={path};law={law};depth=3]", **options
        ) as engine:
            for ask, wanted in zip(asks, want, strict=True):
                results = engine.generate_batch(PROMPTS, max_tokens=30, **ask)
                assert [r.choices[0].token_ids for r in results] == wanted, (law, ask)
            assert engine.parts.drafter.name == f"{cascade}(ngram, {kind})"


def test_a_folder_is_drafted_with_in_the_right_drafter(model, tmp_path):
    """Options of the drafter's stand behind a colon; other forms than our own: tests/cli/test_train.py."""
    for kind in KINDS:
        path = folder_of(tmp_path, kind)
        assert named(f"{path}:depth=2") == f"{kind}:path={path},depth=2"
        with forerun.load(model, str(path), runtime="torch", kv_tokens=2048) as engine:
            assert engine.parts.drafter.name == kind
    assert named(str(model)) == f"model:path={model}"
    with pytest.raises(LoadError, match="no weights of a head"):
        named(str(tmp_path))
    assert named("ngram:min=3") == "ngram:min=3"


def test_int8_rows_on_disk_and_bf16_in_memory(model, tmp_path):
    if ext.extension() is None:
        pytest.skip("the native extension was not built")
    head = random_head(random_config("eagle3", VOCAB, WIDTH, 120, **SIZES), 5)
    own.write(head, tmp_path)
    with forerun.load(model, runtime="native") as engine:
        want = engine.generate("the sea", max_tokens=20).choices[0].token_ids
    for format in FORMATS:
        with forerun.load(model, f"eagle3:path={tmp_path},format={format}", runtime="native") as engine:
            assert engine.generate("the sea", max_tokens=20).choices[0].token_ids == want


def test_what_cannot_be(model, tmp_path):
    with pytest.raises(SpecError, match="needs a head for"):
        forerun.load(model, "eagle3")
    with pytest.raises(LoadError):
        forerun.load(model, f"eagle3:path={tmp_path}/none")
    path = folder_of(tmp_path, "mtp")
    with pytest.raises(SpecError, match="kind mtp"):
        forerun.load(model, f"eagle3:path={path}")
    other = write_folder(tmp_path / "other", Tiny(hidden=48, heads=4, head_dim=12))
    with pytest.raises(LoadError, match=r"expects hidden size 32, .* has 48"):
        forerun.load(other, f"mtp:path={path}")
    with pytest.raises(SpecError, match="tree"):
        forerun.load(model, f"mtp:path={path},tree=eagle")


def test_a_head_of_other_weights_of_the_same_sizes_warns(model, tmp_path):
    head = random_head(random_config("eagle3", VOCAB, WIDTH, 120, **SIZES), 5)
    own.write(type(head)(head.config, head.tensors, head.words, "0123456789abcdef"), tmp_path)
    with pytest.warns(UserWarning, match="0123456789abcdef"):
        forerun.load(model, f"eagle3:path={tmp_path}").close()


def test_long_prompts_are_read_in_chunks_and_windows(model, tmp_path):
    path = folder_of(tmp_path, "eagle3")
    prompt = list(torch.randint(0, 250, (150,), generator=torch.Generator().manual_seed(1)).tolist())
    with forerun.load(model, kv_tokens=512, chunk=32) as engine:
        want = engine.generate(prompt, max_tokens=40).choices[0].token_ids
    for options in ("chunk=16", "chunk=16,window=12,sinks=2", "window=64"):
        with forerun.load(model, f"eagle3:path={path},{options}", kv_tokens=512, chunk=32) as engine:
            assert engine.generate(prompt, max_tokens=40).choices[0].token_ids == want


def told(result) -> tuple:
    """What an answer was, and what of it was drafted and stood."""
    choice = result.choices[0]
    return choice.token_ids, choice.stats.drafted, choice.stats.accepted, choice.stats.target_passes


@in_turn(["spec"], product([*KINDS, "mixed:of=ngram[min=1]+"]))
def test_a_second_turn_is_not_read_again(spec, runtime, model, tmp_path):
    """What heads made of a beginning is kept beside the target's memory of it, and drafts are those of a head that has
    read all. Three turns, others between them, and one that goes another way inside a shared block."""
    kind = "eagle3" if spec.startswith("mixed") else spec
    path = folder_of(tmp_path, kind)
    drafter = f"{spec}eagle3[path={path}]" if spec.startswith("mixed") else f"{kind}:path={path}"
    draw = torch.Generator().manual_seed(3)
    first, more, other = (torch.randint(0, 250, (count,), generator=draw).tolist() for count in (70, 30, 40))
    found = {}
    for reuse in (True, False):
        with forerun.load(model, drafter, runtime=runtime, kv_tokens=2048, reuse=reuse) as engine:
            one = engine.generate(first, max_tokens=24, ignore_eos=True)
            turns = [one, engine.generate(other, max_tokens=20, ignore_eos=True)]
            talk = [*first, *one.choices[0].token_ids, *more]
            for prompt in (talk, [*talk, *more], [*talk[:50], *other]):
                turns += engine.generate_batch([prompt, other], max_tokens=24, ignore_eos=True)
            found[reuse] = turns
            for part in getattr(engine.parts.drafter, "drafters", [engine.parts.drafter]):
                if hasattr(part, "_slots"):
                    part._slots.pool.check_integrity()
    assert [turn.choices[0].token_ids for turn in found[True]] == [turn.choices[0].token_ids for turn in found[False]]
    reused = [turn.choices[0].stats.reused for turn in found[True]]
    assert not any(turn.choices[0].stats.reused for turn in found[False])
    assert reused[2] >= 64, "the first prompt whole"
    if not spec.startswith("mixed"):  # where lookups speak alone, the head reads nothing
        assert [count > 0 for count in reused] == [False, False, *[True] * 6]
        assert reused[4] >= reused[2] + 30
    if spec in ("eagle", "eagle3", "p-eagle", "mtp"):  # Medusa's first draft waits for a state
        assert [told(turn) for turn in found[True]] == [told(turn) for turn in found[False]]


@in_turn([], [()])
def test_texts_longer_than_the_head_learnt_share_their_beginning_and_stay_right(runtime, model, tmp_path):
    """A text that outgrows what the head learnt from is read on; what others share of it stays as it was."""
    path = folder_of(tmp_path, "eagle3", max_len=64)
    head = torch.randint(0, 250, (40,), generator=torch.Generator().manual_seed(4)).tolist()
    found = {}
    for reuse in (True, False):
        options = {"runtime": runtime, "kv_tokens": 512, "reuse": reuse, "costs": "free"}
        with forerun.load(model, f"eagle3:path={path}", **options) as engine:
            slots, answers = engine.parts.drafter._slots, []
            for most in (4, 100, 4, 100):
                prompts = [[*head, 1, 2], [*head, 9, 1, 2], [*head, 3]]
                answers += engine.generate_batch(prompts, max_tokens=most, ignore_eos=True)
                slots.pool.check_integrity()
            found[reuse] = [told(answer) for answer in answers]
            assert all(answer.choices[0].stats.drafted > 0 for answer in answers[3:6])
    assert found[True] == found[False]
