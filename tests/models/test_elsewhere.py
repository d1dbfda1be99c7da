"""Models of other families: the error says whether transformers runs them (docs/failures.md, 225)."""

from __future__ import annotations

import builtins
import json
import sys

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import forerun
from forerun.core.errors import LoadError
from forerun.models.config import ModelConfig
from forerun.testing.tiny import SPECIALS, tokenizer_json, write_folder

SMALL = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=264)
OTHERS = {
    "gpt2": dict(n_embd=32, n_layer=2, n_head=4, vocab_size=264, n_positions=128),
    "gpt_neox": {**SMALL, "max_position_embeddings": 128},
    "phi3": {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0},
    "gemma2": {**SMALL, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128},
}


@pytest.fixture(scope="module", params=OTHERS)
def other(request, tmp_path_factory):
    """A tiny folder of that family, as transformers writes it, with a tokenizer."""
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    config = AutoConfig.for_model(request.param, bos_token_id=258, eos_token_id=259, **OTHERS[request.param])
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": SPECIALS[2]}))
    return folder


def test_225_another_family_is_offered_the_runtime_that_runs_it(other):
    for options in ({}, {"runtime": "torch"}):
        with pytest.raises(LoadError, match=r"(model_type|architectures) is .*transformers runs it: give --runtime hf"):
            forerun.load(other, **options)
    with forerun.load(other, runtime="hf") as engine:
        assert len(engine.generate("abc", max_tokens=3, ignore_eos=True).token_ids) == 3


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "klingon", "architectures": ["KlingonForCausalLM"]}, "has no such language model"),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "BertForMaskedLM writes no text"),
        ({"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]}, "writes no text: use"),
        ({"model_type": None, "architectures": None}, "has no such language model"),
        ({"model_type": ["gpt2"], "architectures": None}, "has no such language model"),
        ({"hidden_act": "gelu"}, "activation is not implemented; transformers runs it: give --runtime hf"),
        ({"partial_rotary_factor": 0.5}, "not implemented; transformers runs it: give --runtime hf"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "not implemented; transformers runs it: give --runtime hf"),
    ],
)  # fmt: skip
def test_225_runtime_hf_is_offered_only_where_it_helps(config, says, tmp_path):
    said = json.loads((write_folder(tmp_path / "m") / "config.json").read_text())
    with pytest.raises(LoadError, match=says) as caught:
        ModelConfig.from_hf({**said, **config})
    assert ("--runtime hf" in str(caught.value)) == ("runs it" in says or "no such" in says)


def test_225_without_transformers_it_is_said_what_is_needed(monkeypatch):
    true = builtins.__import__

    def without(name, *args, **more):
        if name.startswith("transformers"):
            raise ImportError(name)
        return true(name, *args, **more)

    for name in [name for name in sys.modules if name.startswith("transformers.models.auto.modeling_auto")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(LoadError, match=r"pip install 'forerun\[hf\]' and give --runtime hf"):
        ModelConfig.from_hf({"model_type": "gpt2"})
