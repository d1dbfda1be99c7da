"""The parts of heads' configs that all forms share: a decoder layer's sizes in Hugging Face's names, and taps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from forerun.core.errors import LoadError, SpecError
from forerun.models.fields import Fields
from forerun.models.heads.config import RecurrentConfig
from forerun.models.rope import Rope


def layer_sizes(said: Mapping[str, object], tensors: Mapping[str, Tensor], prefix: str = "layers.") -> dict[str, Any]:
    """Fields of RecurrentConfig that a Llama or Qwen3 config and the tensors' names settle."""
    read = Fields(said)
    hidden = read.integer("hidden_size", 2, 1 << 17)
    heads = read.integer("num_attention_heads", 1, 1024)
    max_len = read.integer("max_position_embeddings", 1, 1 << 25, default=2048)
    if read.missing("head_dim") and hidden % heads:
        raise read.bad("hidden_size", f"a multiple of num_attention_heads = {heads}, or give head_dim")
    first = f"{prefix}0.self_attn."
    return {
        "vocab_size": read.integer("vocab_size", 1, 1 << 22),
        "hidden_size": hidden,
        "intermediate_size": read.integer("intermediate_size", 1, 1 << 20),
        "heads": heads,
        "kv_heads": read.integer("num_key_value_heads", 1, 1024, default=heads),
        "head_dim": read.integer("head_dim", 2, 1024, default=hidden // heads),
        "norm_eps": read.number("rms_norm_eps", 0.0, 1.0, default=1e-6),
        "rope": Rope.from_hf(said, max_len),
        "max_len": max_len,
        "layers": 1
        + max((int(n.removeprefix(prefix).split(".")[0]) for n in tensors if n.startswith(prefix)), default=0),
        "qkv_bias": f"{first}q_proj.bias" in tensors,
        "qk_norm": f"{first}q_norm.weight" in tensors,
        "fc_bias": "fc.bias" in tensors,
    }


def layer_config(c: RecurrentConfig) -> dict[str, Any]:
    """The same the other way round."""
    return {
        "model_type": "qwen3" if c.qk_norm else "llama", "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size, "num_hidden_layers": c.layers, "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim, "vocab_size": c.vocab_size,
        "rms_norm_eps": c.norm_eps, "max_position_embeddings": c.max_len, "hidden_act": "silu",
        "tie_word_embeddings": False, **rope_config(c.rope),
    }  # fmt: skip


def rope_config(rope: Rope) -> dict[str, Any]:
    """`rope_theta` and `rope_scaling` that `Rope.from_hf` reads as this."""
    if rope.kind == "default":
        return {"rope_theta": rope.theta, "rope_scaling": None}
    scaling: dict[str, Any] = {"rope_type": rope.kind, "type": rope.kind, "factor": rope.factor}
    if rope.kind in ("llama3", "yarn"):
        scaling["original_max_position_embeddings"] = rope.original_max_len
    if rope.kind == "llama3":
        scaling |= {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    if rope.kind == "yarn":
        names = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")
        scaling |= {name: value for name in names if (value := getattr(rope, name)) is not None}
    return {"rope_theta": rope.theta, "rope_scaling": scaling}


def default_taps(layers: int) -> tuple[int, ...]:
    """EAGLE-3's as published: the inputs of layers 2, L // 2 and L - 3, each once."""
    return tuple(dict.fromkeys((2, layers // 2, layers - 3)))


def taps_of(said: Mapping[str, object], layers: int) -> tuple[int, ...]:
    """Layers whose inputs an EAGLE-3 head reads: named at the top level, one off in `eagle_config`, else as published.

    A last one past the target's layers is some speculators' file's own final state, which no head reads.
    """
    named = said.get("eagle_aux_hidden_state_layer_ids")
    inner, off = said.get("eagle_config"), 0
    if named is None and isinstance(inner, Mapping):
        named, off = inner.get("eagle_aux_hidden_state_layer_ids"), 1  # there, numbers are of layers' outputs
    if named is None:
        return default_taps(layers)
    if (
        not isinstance(named, list)
        or not named
        or not all(isinstance(n, int) and not isinstance(n, bool) for n in named)
    ):
        raise Fields(said).bad("eagle_aux_hidden_state_layer_ids", "a list of layer numbers")
    taps = tuple(n + off for n in named)
    if max(taps) > layers or min(taps) < 0:
        raise LoadError(f"the head reads layer {max(taps)}, the target has {layers}: it is another target's")
    return taps


def sides(tensors: Mapping[str, Tensor], name: str) -> tuple[int, int]:
    """Rows and columns of a matrix; LoadError if there is none."""
    if name not in tensors or tensors[name].ndim != 2:
        raise LoadError(f"tensor {name!r} is missing from the head, or is no matrix")
    rows, cols = tensors[name].shape
    return rows, cols


def draft_vocab_of(said: Mapping[str, object], tensors: Mapping[str, Tensor], words: Tensor | None, vocab: int) -> int:
    """How many words an EAGLE-3 head speaks: rows of its end; without one it must speak all of the target's."""
    if "lm_head.weight" in tensors:
        return sides(tensors, "lm_head.weight")[0]
    if words is not None or said.get("draft_vocab_size") not in (None, vocab):
        sides(tensors, "lm_head.weight")  # says that it is missing
    return vocab


def made(**values: Any) -> RecurrentConfig:
    """The config of these values; LoadError for values that cannot be."""
    try:
        return RecurrentConfig(**values)
    except SpecError as error:
        raise LoadError(f"the head's config cannot be: {error}") from error
