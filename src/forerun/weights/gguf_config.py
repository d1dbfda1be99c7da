"""A Hugging Face style config out of GGUF metadata, so that one `ModelConfig` serves both formats.

What metadata does not say is read off the tensors: a missing output.weight means a tied head, biases
exist where their tensors do. `attention_out_bias` is our own key: Hugging Face has one flag for q, k, v
and o together, files have them apart. Values are not range-checked here; `ModelConfig` does that.
"""

import math
from collections.abc import Mapping

import torch

from forerun.arch import ACTIVATIONS, FAMILIES, Arch, of_gguf
from forerun.core.errors import LoadError
from forerun.weights.gguf import GGUFFile
from forerun.weights.names import ROPE_FACTORS

_REQUIRED = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
_YARN = {
    "attention_factor": "rope.scaling.attn_factor",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}
_EOS = ("eos_token_id", "eot_token_id", "eom_token_id")


def architecture(metadata: Mapping[str, object], where: str) -> Arch:
    """The file's family; LoadError if it is missing or not one we run."""
    got = metadata.get("general.architecture")
    families = of_gguf(got)
    if not families:
        allowed = ", ".join(dict.fromkeys(arch.gguf for arch in FAMILIES.values()))
        raise LoadError(
            f"{where}: general.architecture is {repr(got)[:80]} (allowed: {allowed}); use one of those models, or this "
            "one's transformers folder with --runtime hf"
        )
    return families[-1 if metadata.get(f"{got}.attention.sliding_window") else 0]


def eos_ids(metadata: Mapping[str, object]) -> frozenset[int]:
    """The end-of-text, end-of-turn and end-of-message ids the file names; possibly none. Odd ones are its tokenizer's
    to judge."""
    found = (metadata.get(f"tokenizer.ggml.{key}") for key in _EOS)
    tokens = metadata.get("tokenizer.ggml.tokens")
    size = len(tokens) if isinstance(tokens, list) else 1 << 31
    return frozenset(i for i in found if isinstance(i, int) and not isinstance(i, bool) and 0 <= i < size)


def to_hf(file: GGUFFile) -> dict[str, object]:
    """The config of a checked GGUF file with Hugging Face keys; LoadError names a missing key or tensor."""
    meta, where = file.metadata, str(file.path)
    family = architecture(meta, where)
    arch = family.gguf
    if "token_embd.weight" not in file.tensors:
        raise LoadError(f"{where}: tensor 'token_embd.weight' is missing: not a whole language model")
    if meta.get(f"{arch}.expert_count"):
        raise LoadError(f"{where}: mixture-of-experts models are not supported; use a dense model")
    config: dict[str, object] = {"model_type": family.name, family.activation_key: ACTIVATIONS[family.activation][0]}
    for key, ours in _REQUIRED.items():
        config[key] = _same(_need(meta, f"{arch}.{ours}", where), f"{arch}.{ours}", where)
        if isinstance(config[key], bool) or not isinstance(config[key], float if key == "rms_norm_eps" else int):
            raise LoadError(f"{where}: {arch}.{ours} is {repr(config[key])[:80]} (allowed: a number); convert it again")
    kv = meta.get(f"{arch}.attention.head_count_kv", config["num_attention_heads"])
    config["num_key_value_heads"] = _same(kv, f"{arch}.attention.head_count_kv", where)
    config["vocab_size"] = file.tensors["token_embd.weight"].shape[0]
    config |= _shape(meta, arch, where) | _biases(file)
    config |= _rope(file, family, where, config.get("head_dim")) | _windows(meta, family)
    config |= {key: meta[f"{arch}.{key}"] for key in family.refused if f"{arch}.{key}" in meta}
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    if config["num_hidden_layers"] in family.query_scale_layers and isinstance(hidden, int) and isinstance(heads, int):
        config[str(family.query_scale_key)] = hidden / max(1, heads)
    config["tie_word_embeddings"] = "output.weight" not in file.tensors
    for key in ("bos_token_id", "eos_token_id"):
        if f"tokenizer.ggml.{key}" in meta:
            config[key] = meta[f"tokenizer.ggml.{key}"]
    return config


def _windows(meta: Mapping[str, object], family: Arch) -> dict[str, object]:
    arch = family.gguf
    window = meta.get(f"{arch}.attention.sliding_window") or None
    if family.windows == "none":
        return {}
    found: dict[str, object] = {"sliding_window": window}
    if family.windows == "switch":
        found |= {"use_sliding_window": bool(window), "max_window_layers": 0}
    if family.windows == "pattern":
        every = meta.get(f"{arch}.attention.sliding_window_pattern")
        if isinstance(every, list):
            found["layer_types"] = ["sliding_attention" if local else "full_attention" for local in every]
        elif every is not None:
            found["sliding_window_pattern"] = every
    if family.local_theta is not None:
        found["rope_local_base_freq"] = meta.get(f"{arch}.rope.freq_base_swa", family.local_theta)
    return found


def _need(meta: Mapping[str, object], key: str, where: str) -> object:
    if key not in meta:
        raise LoadError(f"{where}: metadata {key!r} is missing; convert the model again")
    return meta[key]


def _same(value: object, key: str, where: str) -> object:
    if not isinstance(value, list):
        return value
    if not value or any(v != value[0] for v in value):
        raise LoadError(f"{where}: {key} differs by layer, {value[:4]}…: one value for all layers is supported")
    return value[0]


def _shape(meta: Mapping[str, object], arch: str, where: str) -> dict[str, object]:
    head_dim = meta.get(f"{arch}.attention.key_length")
    values = meta.get(f"{arch}.attention.value_length", head_dim)
    turned = meta.get(f"{arch}.rope.dimension_count", head_dim)
    if head_dim is None:
        heads, hidden = meta.get(f"{arch}.attention.head_count"), meta.get(f"{arch}.embedding_length")
        if isinstance(heads, int) and isinstance(hidden, int) and heads > 0 and hidden % heads == 0:
            head_dim = hidden // heads
    if (values is not None and values != head_dim) or (turned is not None and turned != head_dim):
        raise LoadError(
            f"{where}: keys have {head_dim} values a head, values {values}, of which {turned} are rotated: "
            "only models with all three equal are supported"
        )
    return {} if head_dim is None else {"head_dim": head_dim}


def _biases(file: GGUFFile) -> dict[str, object]:
    return {
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "attention_out_bias": "blk.0.attn_output.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_down.bias" in file.tensors,
    }


def _rope(file: GGUFFile, family: Arch, where: str, head_dim: object) -> dict[str, object]:
    meta, arch = file.metadata, family.gguf
    theta = meta.get(f"{arch}.rope.freq_base", family.theta)
    kind = meta.get(f"{arch}.rope.scaling.type", "none")
    factor = meta.get(f"{arch}.rope.scaling.factor", meta.get(f"{arch}.rope.scale_linear", 1.0))
    scaling: dict[str, object] | None = None
    if ROPE_FACTORS in file.tensors:
        scaling = _llama3(file.load(ROPE_FACTORS).float(), theta, head_dim, where)
    elif kind == "yarn":
        scaling = {"rope_type": "yarn", "factor": factor}
        original = meta.get(f"{arch}.rope.scaling.original_context_length")
        if original is not None:
            scaling["original_max_position_embeddings"] = original
        scaling |= {ours: meta[f"{arch}.{key}"] for ours, key in _YARN.items() if f"{arch}.{key}" in meta}
    elif kind == "linear" or (kind == "none" and factor not in (0, 1)):
        scaling = {"rope_type": "linear", "factor": factor}
    elif kind != "none":
        raise LoadError(f"{where}: {arch}.rope.scaling.type is {repr(kind)[:80]} (allowed: none, linear, yarn)")
    return {"rope_theta": theta, "rope_scaling": scaling}


def _llama3(factors: torch.Tensor, theta: object, head_dim: object, where: str) -> dict[str, object]:
    """The published Llama 3 scaling whose per-frequency divisors are `factors` [D/2]; LoadError if none is."""
    largest = float(factors.max())
    if isinstance(theta, float | int) and theta > 1 and head_dim == 2 * factors.numel() and 1 < largest < 1e6:
        for original in (8192, 4096, 16384, 32768):
            if _distance(factors, float(theta), largest, original) < 1e-3:
                return {
                    "rope_type": "llama3", "factor": largest, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": original,
                }  # fmt: skip
    raise LoadError(
        f"{where}: {ROPE_FACTORS} is not a Llama 3 rotary scaling (low 1, high 4) that we can recognise: "
        "use the Hugging Face folder of this model"
    )


def _distance(factors: torch.Tensor, theta: float, factor: float, original: int) -> float:
    """Largest relative gap between `factors` and Llama 3's divisors for low 1 and high 4."""
    worst = 0.0
    for i, got in enumerate(factors.tolist()):
        turns = original / (2 * math.pi * theta ** (i / factors.numel()))
        smooth = min(1.0, max(0.0, (turns - 1) / 3))
        worst = max(worst, abs(got * ((1 - smooth) / factor + smooth) - 1))
    return worst if math.isfinite(worst) else math.inf
