"""Random 2-layer models of every family, as transformers builds them and as ours, with the same weights."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from forerun.core.params import SamplingParams
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.models.config import ModelConfig
from forerun.models.load import build_network
from forerun.models.network import Network
from forerun.models.opening import pack_now
from forerun.native.packed import PackedModel
from forerun.targets.hf_target import HfTarget
from forerun.targets.native_runner import NativeRunner
from forerun.targets.paged import PagedTarget
from forerun.targets.torch_runner import TorchRunner
from forerun.weights.folder import Checkpoint
from forerun.weights.source import Take

VOCAB = 97
SIZES: dict[str, Any] = dict(
    vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6,
    num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False, pad_token_id=None,
    bos_token_id=1, eos_token_id=2,
)  # fmt: skip
LLAMA3 = dict(
    rope_type="llama3", rope_theta=1000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=64,
)  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", dict(tie_word_embeddings=True, num_key_value_heads=6)),
    "llama-biased": ("llama", dict(attention_bias=True, mlp_bias=True)),
    "llama-llama3": ("llama", dict(rope_parameters=LLAMA3)),
    "llama-linear": ("llama", dict(rope_parameters=dict(rope_type="linear", rope_theta=1000.0, factor=2.0))),
    "llama-yarn": (
        "llama",
        dict(
            rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=64)
        ),
    ),
    "mistral": ("mistral", dict(sliding_window=8, head_dim=8)),
    "qwen2": ("qwen2", dict(tie_word_embeddings=True)),
    "qwen2-windows": (
        "qwen2",
        dict(use_sliding_window=True, sliding_window=6, layer_types=["full_attention", "sliding_attention"]),
    ),
    "qwen3": ("qwen3", dict(head_dim=16, tie_word_embeddings=True)),
    "qwen3-untied": ("qwen3", dict(head_dim=16)),
    "gemma3": ("gemma3_text", dict(head_dim=16, sliding_window=6, query_pre_attn_scalar=16, sliding_window_pattern=2)),
    "gemma3-scaled": (
        "gemma3_text",
        dict(
            head_dim=16,
            sliding_window=6,
            query_pre_attn_scalar=40,
            tie_word_embeddings=True,
            num_key_value_heads=1,
            layer_types=["full_attention", "sliding_attention"],
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1000.0, factor=8.0),
                sliding_attention=dict(rope_type="default", rope_theta=100.0),
            ),
        ),
    ),
}


class Tensors(dict[str, Tensor]):
    """A state dict as a `TensorSource`."""

    def names(self) -> frozenset[str]:
        return frozenset(self)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self[name].shape)

    def load(self, name: str) -> Tensor:
        return self[name]

    def raw(self, name: str) -> None:
        return None


@cache
def hf_model(family: str) -> Any:
    """The transformers model, float32, eager attention, weights large enough to matter."""
    kind, changes = FAMILIES[family]
    config = AutoConfig.for_model(kind, **{**SIZES, **changes})
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(1 + 0.2 * torch.randn_like(value) if "norm" in name else 0.15 * torch.randn_like(value))
    return model


@cache
def network(family: str) -> Network:
    model = hf_model(family)
    config = ModelConfig.from_hf(model.config.to_dict())
    return build_network(config, Take(Tensors(model.state_dict())), torch.float32, "cpu")


@cache
def packed(family: str, weights: str = "f32") -> PackedModel:
    """The same weights as the native runtime wants them."""
    model = hf_model(family)
    config, tensors = model.config.to_dict(), Tensors(model.state_dict())
    return pack_now(Checkpoint(Path(family), config, tensors, family, frozenset(), "folder"), weights)


def target(family: str, runtime: str = "torch", weights: str = "f32", kv: str = "auto", **options: Any) -> PagedTarget:
    options = {"kv_tokens": 512, "name": family, "fingerprint": family, **options}
    if runtime == "torch":
        return PagedTarget(TorchRunner(network(family)), **options)
    return PagedTarget(NativeRunner(packed(family, weights), kv=kv), **options)


def hf_forward(family: str, tokens: list[int]) -> Any:
    """Logits [T, V] and hidden states of each layer [T, E], without a cache."""
    with torch.inference_mode():
        out = hf_model(family)(torch.tensor([tokens]), output_hidden_states=True, use_cache=False)
    return out.logits[0], [state[0] for state in out.hidden_states]


def seq(tokens: list[int], id: int = 0) -> Seq:
    return Seq(id, tokens, SamplingParams(), 256)


def text(count: int, seed: int = 0) -> list[int]:
    """Random token ids."""
    return torch.randint(3, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


CLOSE = dict(rtol=1e-4, atol=1e-4)


@cache
def gpt2() -> Any:
    """A model whose positions are learnt."""
    torch.manual_seed(1)
    config = AutoConfig.for_model("gpt2", vocab_size=97, n_embd=24, n_layer=2, n_head=2, n_positions=128)
    return AutoModelForCausalLM.from_config(config).eval()


def fresh_row(target: HfTarget, tokens: list[int]) -> Tensor:
    """The row after `tokens`, without a cache."""
    with torch.inference_mode():
        return target._model.model(torch.tensor([tokens]), use_cache=False).logits[0, -1]


def check_rows(target: HfTarget, item: Item, b: int, rows: Any) -> None:
    """Hold the rows of an item's fresh nodes against forwards over their paths."""
    for node in range(item.seen, len(item.nodes)):
        path = [item.nodes.tokens[n] for n in (0, *item.nodes.path(node))]
        want = fresh_row(target, [*item.seq.tokens[: item.stop], *path])
        torch.testing.assert_close(rows.raw(b, node), want, **CLOSE)
