"""transformers models as targets: same bookkeeping as ours, and a refusal where a cache cannot be cut back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from families import CLOSE, check_rows, fresh_row, gpt2, hf_model, seq, text
from transformers import AutoConfig, AutoModelForCausalLM

from forerun.core.draft import Tree
from forerun.core.errors import CapacityError, LoadError, SpecError
from forerun.core.work import Item
from forerun.targets.hf_target import HfTarget
from forerun.targets.hf_target import load as load_hf


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "qwen2-windows", "gpt2"])
@pytest.mark.parametrize("seed", range(2))
def test_random_use_equals_fresh_forwards(family: str, seed: int) -> None:
    draw = random.Random(seed)
    target = HfTarget(gpt2() if family == "gpt2" else hf_model(family), reuse=bool(seed))
    assert target.spec.trees == (family in ("llama", "qwen3", "gpt2"))
    running = [seq(text(20, 1)), seq(text(1, 2)), seq(text(7, 3))]
    for each in running:
        target.begin(each)
    for _ in range(8):
        work = []
        for each in running:
            held = target.held(each)
            stop = draw.randrange(held, len(each))
            nodes = draw.randrange(1, 6)
            parents = tuple(draw.randrange(n) if target.spec.trees else n - 1 for n in range(1, nodes))
            tree = Tree((each.last, *text(nodes - 1, draw.random().__hash__())), (-1, *parents))
            work.append(Item(each, held, stop, tree if stop == len(each) - 1 else None))
        work = [item for item in work if item.tree or item.certain]
        rows = target.score(work)
        guessed = [item for item in work if item.tree]
        for b, item in enumerate(work):
            check_rows(target, item, b, rows)
        paths = [item.nodes.path(draw.randrange(len(item.nodes))) for item in guessed]
        target.commit([item.seq for item in guessed], paths)
        for item, path in zip(guessed, paths, strict=True):
            item.seq.tokens.extend([*(item.nodes.tokens[n] for n in path), draw.randrange(97)])
            assert target.held(item.seq) == len(item.seq) - 1
        lucky = draw.choice(running)
        target.truncate(lucky, draw.randrange(target.held(lucky) + 1))
        back = draw.choice(running)
        target.release(back)
        assert target.begin(back) == 0 or seed
    for each in running:
        target.release(each)
    assert target.usage.used == 0


def test_kept_nodes_grow_level_by_level() -> None:
    target, prompt = HfTarget(hf_model("llama")), seq(text(12))
    target.begin(prompt)
    full = Tree((prompt.last, 4, 5, 6, 7, 8), (-1, 0, 0, 1, 2, 1))
    held, seen = 0, 0
    for size in (1, 3, 6):
        item = Item(prompt, held, 11, Tree(full.tokens[:size], full.parents[:size]), seen)
        check_rows(target, item, 0, target.score([item], keep=True))
        held, seen = 11, size
    target.commit([prompt], [[2, 4]])
    prompt.tokens.extend([5, 7, 9])
    item = Item(prompt, 14, 14, Tree.root(9))
    check_rows(target, item, 0, target.score([item]))


def test_a_next_turn_continues_the_kept_cache() -> None:
    target, first = HfTarget(hf_model("llama")), seq(text(30))
    target.begin(first)
    target.score([Item(first, 0, 29, Tree.root(first.last))])
    target.commit([first], [[]])
    target.release(first)
    assert target.usage.remembered == 30
    turn = seq([*text(30)[:25], 1, 2, 3])
    assert target.begin(turn) == 25
    check_rows(target, item := Item(turn, 25, 27, Tree.root(3)), 0, target.score([item]))
    target.release(turn)
    again = seq(turn.tokens)
    assert target.begin(again) == 27
    third = seq(text(30))
    assert target.begin(third) == 29  # what was continued otherwise is still kept
    check_rows(target, item := Item(third, 29, 29, Tree.root(third.last)), 0, target.score([item]))


def test_kept_caches_give_way_and_room_is_bounded() -> None:
    target = HfTarget(hf_model("llama"), kv_tokens=64)
    for seed in range(6):
        each = seq(text(30, seed))
        target.begin(each)
        assert target.reserve(each, 34)
        target.score([Item(each, target.held(each), 29)])
        target.release(each)
        assert target.usage.free >= 0
    a, b = seq(text(40, 8)), seq(text(40, 9))
    target.begin(a)
    target.begin(b)
    assert target.reserve(a, 40) and not target.reserve(b, 30) and target.reserve(b, 20)
    with pytest.raises(CapacityError, match="kv_tokens"):
        target.score([Item(b, target.held(b), 39)])


def test_sizes_that_the_model_has_not_are_refused_as_on_our_own_runtime() -> None:
    for options, error, words in (
        ({"max_len": 0}, SpecError, "allowed 1..256"),
        ({"max_len": -3}, SpecError, "allowed 1..256"),
        ({"max_len": 1000}, SpecError, "allowed 1..256"),
        ({"kv_tokens": 0}, CapacityError, "cannot hold"),
        ({"kv_tokens": 64, "max_len": 128}, CapacityError, "cannot hold one sequence of max_len 128"),
        ({"vocab_size": 98}, SpecError, "allowed 1..97"),
    ):
        with pytest.raises(error, match=words):
            HfTarget(hf_model("llama"), **options)
    assert HfTarget(hf_model("llama"), kv_tokens=64).spec.max_len == 64


def test_taps_are_hidden_states() -> None:
    target, each = HfTarget(hf_model("qwen2")), seq(text(9))
    target.begin(each)
    rows = target.score([Item(each, 0, 8, Tree.root(each.last))], taps=(0, 2))
    with torch.inference_mode():
        states = hf_model("qwen2")(torch.tensor([each.tokens]), output_hidden_states=True).hidden_states
    torch.testing.assert_close(rows.hidden, torch.cat([states[0][0], states[2][0]], -1), **CLOSE)
    with pytest.raises(SpecError, match="tap 3"):
        target.score([], taps=(3,))


@pytest.mark.parametrize("kind", ["mamba", "recurrent_gemma"])
def test_states_that_cannot_be_cut_back_are_refused_at_once(kind: str) -> None:
    sizes: dict[str, Any] = dict(vocab_size=97, hidden_size=16, num_hidden_layers=3, pad_token_id=0)
    if kind == "recurrent_gemma":
        sizes |= dict(num_attention_heads=2, intermediate_size=32, lru_width=16, attention_window_size=8)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes))
    with pytest.raises(SpecError, match=rf"toy \({type(model).__name__}\) cannot be a target"):
        HfTarget(model, name="toy")


def test_a_chain_only_model_says_so() -> None:
    target, each = HfTarget(hf_model("mistral")), seq(text(4))
    target.begin(each)
    with pytest.raises(SpecError, match="only score chains"):
        target.score([Item(each, 0, 3, Tree((each.last, 1, 2), (-1, 0, 0)))])


def test_loading_from_a_folder(tmp_path: Path) -> None:
    hf_model("llama").save_pretrained(tmp_path)
    target, each = load_hf(tmp_path, vocab_size=90), seq(text(5))
    assert target.spec.fingerprint == load_hf(tmp_path).spec.fingerprint
    target.begin(each)
    row = target.score([Item(each, 0, 4, Tree.root(each.last))]).raw(0, 0)
    torch.testing.assert_close(row, fresh_row(target, each.tokens)[:90], **CLOSE)
    with pytest.raises(SpecError, match="float32"):
        load_hf(tmp_path, dtype="float31")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(LoadError, match="cannot load"):
        load_hf(tmp_path)
