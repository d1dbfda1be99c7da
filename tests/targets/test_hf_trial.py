"""What transformers models can be: windows under any name, positions by index, half precision, rotations by length."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
import torch
from families import SIZES, check_rows, gpt2, hf_model, seq, text
from transformers import AutoConfig, AutoModelForCausalLM

from forerun.core.draft import Tree
from forerun.core.errors import SpecError
from forerun.core.work import Item
from forerun.targets.hf_rotary import Reach, reach_of
from forerun.targets.hf_target import HfTarget
from forerun.targets.hf_trial import looks_local
from forerun.testing.engines import toy_engine
from forerun.testing.scripted import by_position

LONGROPE = dict(
    rope_type="longrope", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=64,
    short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.0, 1.5, 3.0, 6.0],
)  # fmt: skip
PHIMOE = dict(num_local_experts=2, rope_parameters=LONGROPE | dict(short_mscale=1.1, long_mscale=1.3))
NEO = dict(hidden_size=48, num_layers=2, num_heads=6, intermediate_size=80, max_position_embeddings=256, vocab_size=97)


def neo(window: int, kinds: list[str]) -> tuple[str, dict[str, Any]]:
    return "gpt_neo", NEO | dict(attention_types=[[kinds, 1]], window_size=window)


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3": ("phi3", SIZES | dict(rope_parameters=LONGROPE, original_max_position_embeddings=64)),
    "llama": ("llama", SIZES | dict(rope_parameters=LONGROPE)),
    "phimoe": ("phimoe", SIZES | PHIMOE),
    "dynamic": ("llama", SIZES | dict(rope_parameters=dict(rope_type="dynamic", rope_theta=1000.0, factor=4.0))),
    "mpt": ("mpt", dict(d_model=48, n_layers=2, n_heads=6, expansion_ratio=2, vocab_size=97, max_seq_len=256)),
    "bloom": ("bloom", dict(hidden_size=48, n_layer=2, n_head=6, vocab_size=97)),
    "falcon": ("falcon", dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=6, alibi=True, vocab_size=97)),
    "window 4": neo(4, ["global", "local"]),
    "window 40": neo(40, ["local", "local"]),
    "window past the trial": neo(200, ["local", "global"]),
}


@cache
def made(name: str) -> Any:
    kind, options = MODELS[name]
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **options)).eval()
    with torch.no_grad():
        for parameter, value in model.named_parameters():
            value.copy_(1 + 0.2 * torch.randn_like(value) if "norm" in parameter else 0.15 * torch.randn_like(value))
    return model


@pytest.mark.parametrize("name", ["phi3", "llama", "phimoe"])
@pytest.mark.parametrize(("prompt", "chunk"), [(100, 50), (59, 100), (63, 20), (40, 30)])
def test_261_rows_on_both_sides_of_the_switch_are_those_of_a_plain_forward(name: str, prompt: int, chunk: int) -> None:
    target, each = HfTarget(made(name)), seq(text(prompt, chunk))
    assert target.spec.trees and target.begin(each) == 0
    for stop in [*range(chunk, prompt - 1, chunk), prompt - 1]:
        target.score([Item(each, target.held(each), stop)])
    parents = (-1, 0, 1, 0, 3, 4, 5, 6, 2, 8)
    for step in range(4):
        tree = Tree((each.last, *text(9, step)), parents)
        cut = Tree(tree.tokens[:5], parents[:5])
        item = Item(each, len(each) - 1, len(each) - 1, cut)
        check_rows(target, item, 0, target.score([item], keep=True))
        item = Item(each, len(each) - 1, len(each) - 1, tree, seen=5)
        check_rows(target, item, 0, target.score([item], keep=True))
        path = tree.path((9, 7, 2, 0)[step])
        target.commit([each], [path])
        each.tokens.extend([*(tree.tokens[node] for node in path), 5])
    target.truncate(each, 30)
    item = Item(each, 30, len(each) - 1, Tree.root(each.last))
    check_rows(target, item, 0, target.score([item]))
    target.release(each)
    short = seq(each.tokens[:50])
    assert target.begin(short) == 49  # of keys that the long text had turned
    item = Item(short, 49, 49, Tree((short.last, 4, 5), (-1, 0, 0)))
    check_rows(target, item, 0, target.score([item]))


def test_261_no_draft_across_the_switch_changes_the_text() -> None:
    prompt, count = text(50), 40
    plain: list[int] = []
    with torch.inference_mode():
        for _ in range(count):
            logits = made("phi3")(torch.tensor([[*prompt, *plain]]), use_cache=False).logits[0, -1]
            best = logits.topk(2).values
            assert best[0] - best[1] > 1e-3  # no near-tie decides below
            plain.append(int(logits.argmax()))
    wrong = [(token + (i % 4 == 3)) % 97 for i, token in enumerate(plain)]
    for guess in (None, by_position(plain), by_position(wrong)):
        engine = toy_engine(HfTarget(made("phi3")), guess, depth=5, chunk=20, eos_ids=())
        assert engine.generate(prompt, max_tokens=count).token_ids == plain


def test_261_where_rotations_change_is_found_by_asking_the_modules() -> None:
    assert reach_of(made("phi3"), 256) == Reach(switch=64)
    assert reach_of(made("phimoe"), 256) == Reach(switch=64)
    assert reach_of(made("phi3"), 64) == reach_of(hf_model("llama-yarn"), 256) == reach_of(gpt2(), 128) == Reach()
    model = copy.deepcopy(made("dynamic"))
    assert reach_of(model, 256) == Reach()
    model.config.max_position_embeddings = 1024
    rotary = model.model.rotary_emb
    rotary.config = copy.deepcopy(rotary.config)
    rotary.config.max_position_embeddings = 256
    assert reach_of(model, 1024) == Reach(end=256)
    target = HfTarget(model)
    assert target.spec.max_len == 256
    with pytest.raises(SpecError, match=r"allowed 1\.\.256"):
        HfTarget(model, max_len=300)


@pytest.mark.parametrize("name", ["window 4", "window 40", "window past the trial"])
def test_262_local_attention_by_another_name_gets_no_trees(name: str) -> None:
    target, each = HfTarget(made(name)), seq(text(120))
    assert not target.spec.trees
    target.begin(each)
    target.score([Item(each, 0, 50)])
    item = Item(each, 50, 119, Tree.chain(each.last, text(8)))
    check_rows(target, item, 0, target.score([item]))


@pytest.mark.parametrize(
    ("config", "local"),
    [
        ({"window_size": 256}, True),
        ({"attention_types": [[["global", "local"], 12]]}, True),
        ({"attention_types": [[["global"], 12]]}, False),
        ({"attn_config": {"sliding_window_size": 128}}, True),
        ({"attention_chunk_size": 8192}, True),
        ({"local_attention": 128, "global_attn_every_n_layers": 3}, True),
        ({"index_topk": 2048}, True),
        ({"sliding_window": 4096}, True),
        ({"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 28}, False),
        ({"sliding_window": None, "layer_types": ["full_attention"] * 2}, False),
        ({"layer_types": ["full_attention", "sliding_attention"]}, True),
        ({"layer_types": ["full_attention"], "keep_window_size": 2048}, True),
        ({"chunk_size_feed_forward": 0, "num_local_experts": 8, "decoder_sparse_step": 1}, False),
    ],
)
def test_262_configs_that_speak_of_windows(config: dict[str, object], local: bool) -> None:
    assert looks_local(config) == local


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["mpt", "bloom", "falcon"])
def test_263_positions_by_index_get_no_trees_in_any_precision(name: str, dtype: torch.dtype) -> None:
    assert not HfTarget(copy.deepcopy(made(name)).to(dtype)).spec.trees


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_263_a_trial_in_float32_leaves_the_weights_as_they_were(dtype: torch.dtype) -> None:
    for model in (hf_model("llama"), gpt2()):
        half = copy.deepcopy(model).to(dtype)
        before = {name: (value, value.clone()) for name, value in half.named_parameters()}
        assert HfTarget(half).spec.trees
        for name, value in half.named_parameters():
            assert value is before[name][0] and value.dtype == dtype and torch.equal(value, before[name][1])
