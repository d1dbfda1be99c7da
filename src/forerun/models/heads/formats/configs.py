"""The parts of heads' configs that all forms share: a decoder layer's sizes in Hugging Face's names, taps, norms, ends.

Where a flag and the tensors differ the tensors count, and `differing` says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from forerun.core.errors import LoadError, SpecError
from forerun.models.fields import Fields
from forerun.models.heads.config import RecurrentConfig
from forerun.models.heads.head import Head
from forerun.models.rope import Rope

NORMS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
"""EAGLE-3's switches of norms; all but the first are 3.1's."""


def layer_sizes(said: Mapping[str, object], tensors: Mapping[str, Tensor], own_windows: bool = True) -> dict[str, Any]:
    """Fields of RecurrentConfig that a Llama or Qwen3 config and the tensors' names settle; `own_windows` says that the
    config's windows are of the head's layers and not of a whole model's."""
    read, prefix = Fields(said), "layers."
    hidden = read.integer("hidden_size", 2, 1 << 17)
    heads = read.integer("num_attention_heads", 1, 1024)
    vocab = "vocab_size" if read.missing("target_vocab_size") else "target_vocab_size"
    max_len = read.integer("max_position_embeddings", 1, 1 << 25, default=2048)
    if read.missing("head_dim") and hidden % heads:
        raise read.bad("hidden_size", f"a multiple of num_attention_heads = {heads}, or give head_dim")
    first = f"{prefix}0."
    layers = 1 + max((int(n.removeprefix(prefix).split(".")[0]) for n in tensors if n.startswith(prefix)), default=0)
    return {
        "vocab_size": read.integer(vocab, 1, 1 << 22),
        "hidden_size": hidden,
        "intermediate_size": read.integer("intermediate_size", 1, 1 << 20),
        "heads": heads,
        "kv_heads": read.integer("num_key_value_heads", 1, 1024, default=heads),
        "head_dim": read.integer("head_dim", 2, 1024, default=hidden // heads),
        "norm_eps": read.number("rms_norm_eps", 0.0, 1.0, default=1e-6),
        "rope": Rope.from_hf(said, max_len),
        "max_len": max_len,
        "layers": layers,
        "windows": windows_of(said, layers) if own_windows else (),
        "qkv_bias": f"{first}self_attn.q_proj.bias" in tensors,
        "o_bias": f"{first}self_attn.o_proj.bias" in tensors,
        "mlp_bias": f"{first}mlp.up_proj.bias" in tensors,
        "qk_norm": f"{first}self_attn.q_norm.weight" in tensors,
        "fc_bias": "fc.bias" in tensors,
    }


def windows_of(said: Mapping[str, object], layers: int) -> tuple[int | None, ...]:
    """How far back each of a head's own layers sees: `layer_types` and `sliding_window`, else as transformers has it
    for its families; () is all the way in all layers."""
    read = Fields(said)
    kinds, used = read.raw("layer_types"), read.flag("use_sliding_window", default=False)
    first = read.integer("max_window_layers", 0, 1 << 20, default=28)
    family = read.raw("model_type")
    if kinds is None:
        sliding = [(used and i >= first) or family == "mistral" for i in range(layers)]
        if read.missing("sliding_window"):
            return ()
    else:
        allowed = ("full_attention", "sliding_attention")
        if not isinstance(kinds, list) or len(kinds) < layers or any(kind not in allowed for kind in kinds[:layers]):
            raise read.bad("layer_types", f"a list of {', '.join(allowed)}, one for each of {layers} layers")
        sliding = [kind == "sliding_attention" for kind in kinds[:layers]]
    window = None if read.missing("sliding_window") else read.integer("sliding_window", 1, 1 << 25)
    if not any(sliding):
        return ()
    if window is None or (kinds is not None and not read.missing("use_sliding_window") and not used):
        raise read.bad("layer_types", "full_attention alone where no sliding_window is used")
    return tuple(window if slides else None for slides in sliding)


def layer_config(c: RecurrentConfig) -> dict[str, Any]:
    """The same the other way round."""
    return {
        "model_type": "qwen3" if c.qk_norm else "llama", "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size, "num_hidden_layers": c.layers, "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim, "vocab_size": c.vocab_size,
        "rms_norm_eps": c.norm_eps, "max_position_embeddings": c.max_len, "hidden_act": "silu",
        "tie_word_embeddings": False, **rope_config(c.rope), **_extras(c),
    }  # fmt: skip


def _extras(c: RecurrentConfig) -> dict[str, Any]:
    """What few heads have: biases and windows."""
    found: dict[str, Any] = {}
    if c.qkv_bias or c.o_bias:
        found["attention_bias"] = True
    if c.mlp_bias:
        found["mlp_bias"] = True
    if c.windows:
        found["sliding_window"] = next((window for window in c.windows if window), None)
        found["layer_types"] = ["sliding_attention" if window else "full_attention" for window in c.windows]
    return found


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
    """EAGLE-3's as published: the inputs of layers 2, L // 2 and L - 3, those that there are, in the order in which
    they run."""
    return tuple(sorted({2, layers // 2, layers - 3} & set(range(layers))))


def taps_of(said: Mapping[str, object], layers: int) -> tuple[int, ...]:
    """Layers whose inputs an EAGLE-3 head reads, in the order in which they run: named at the top level, one off in
    `eagle_config`, else as published; an empty list names none."""
    key, inner = "eagle_aux_hidden_state_layer_ids", said.get("eagle_config")
    top = _numbers(said, key)
    nested = _numbers(inner, key) if isinstance(inner, Mapping) else ()
    outputs = tuple(n + 1 for n in nested)  # there, numbers are of layers' outputs
    if top and nested and top not in (nested, outputs):
        raise Fields(said).bad(key, f"what eagle_config says, {list(nested)}", "the two contradict each other")
    taps = top or outputs
    if not taps:
        return default_taps(layers)
    if max(taps) > layers or min(taps) < 0:
        raise LoadError(f"the head reads layer {max(taps)}, the target has {layers}: it is another target's")
    return taps


def _numbers(said: Mapping[str, object], key: str) -> tuple[int, ...]:
    """Layer numbers, ascending, each once."""
    named = said.get(key) or []
    if not isinstance(named, list) or not all(isinstance(n, int) and not isinstance(n, bool) for n in named):
        raise Fields(said).bad(key, "a list of layer numbers")
    return tuple(sorted(set(named)))


def tap_width(
    said: Mapping[str, object], tensors: Mapping[str, Tensor], taps: tuple[int, ...], width: int | None
) -> int:
    """How wide one of these taps is; LoadError, with both numbers, where the head's `fc` reads other than these.

    `width` is the target's, for heads that do not say it.
    """
    read, (rows, cols), count = Fields(said), sides(tensors, "fc.weight"), len(taps)
    if not read.missing("num_aux_hidden_states") and read.integer("num_aux_hidden_states", 1, 64) != count:
        raise read.bad("num_aux_hidden_states", f"{count}, for the taps {list(taps)}")
    told = None if read.missing("target_hidden_size") else read.integer("target_hidden_size", 1, 1 << 17)
    likely = [told] if told else [rows, width or rows]
    if fitting := [one for one in likely if one * count == cols]:
        return fitting[0]
    wide = likely[-1]
    if cols % wide == 0 or told or cols % count:
        raise LoadError(
            f"fc.weight of the head has {cols} columns, which are {cols / wide:.3g} taps of {wide}, but its config "
            f"{'names' if said.get('eagle_aux_hidden_state_layer_ids') else 'asks for'} {count}: {list(taps)}"
        )
    return cols // count


def option(said: Mapping[str, object], key: str, default: bool) -> bool:
    """A flag of EAGLE-3 at the top level or in `eagle_config`; LoadError where the two contradict each other."""
    inner = said.get("eagle_config")
    places = [said, *([inner] if isinstance(inner, Mapping) else [])]
    found = {Fields(place).flag(key, default) for place in places if place.get(key) is not None}
    if len(found) > 1:
        raise Fields(said).bad(key, "what eagle_config says", "the two contradict each other")
    return found.pop() if found else default


def norms_of(said: Mapping[str, object], tensors: Mapping[str, Tensor], before_residual: bool) -> dict[str, bool]:
    """EAGLE-3's switches of norms, 3.1's among them; a norm that is in the file is used."""
    return {
        "norm_before_residual": option(said, "norm_before_residual", before_residual),
        "norm_before_fc": option(said, "norm_before_fc", default=False) or "input_norm.weight" in tensors,
        "fc_norm": option(said, "fc_norm", default=False) or "fc_norm.0.weight" in tensors,
        "norm_output": option(said, "norm_output", default=False),
    }


def tied_end(tied: bool, tensors: dict[str, Tensor], words: Tensor | None) -> None:
    """Give a head whose end is tied, and which has an embedding of its own and no end, its embedding as its end."""
    if tied and "embed_tokens.weight" in tensors and "lm_head.weight" not in tensors:
        table = tensors["embed_tokens.weight"]
        tensors["lm_head.weight"] = table if words is None else table[words]


def differing(said: Mapping[str, object], head: Head) -> list[str]:
    """Flags of a config that the tensors contradict, which count."""
    config = head.config
    if not isinstance(config, RecurrentConfig) or config.kind == "mtp":  # that one's config is a whole model's
        return []
    held = {
        "attention_bias": config.qkv_bias or config.o_bias, "qkv_bias": config.qkv_bias, "mlp_bias": config.mlp_bias,
        "bias": config.fc_bias or config.qkv_bias, "use_qk_norm": config.qk_norm,
        "norm_before_fc": config.norm_before_fc, "fc_norm": config.fc_norm, "num_hidden_layers": config.layers,
    }  # fmt: skip
    inner, layer = said.get("eagle_config"), said.get("transformer_layer_config")
    tied = said.get("tie_word_embeddings") is True and head.own_end  # without an end the flag may be right or not
    places = [{**held, "tie_word_embeddings": head.tied} if tied else held, held, held]
    return [
        f"{key} is {json.dumps(place[key])} in its config, {json.dumps(there)} by its tensors: they count"
        for place, known in zip((said, inner, layer), places, strict=True)
        if isinstance(place, Mapping)
        for key, there in known.items()
        if isinstance(place.get(key), int) and place[key] != there
    ]


def sides(tensors: Mapping[str, Tensor], name: str) -> tuple[int, int]:
    """Rows and columns of a matrix; LoadError if there is none."""
    if name not in tensors or tensors[name].ndim != 2:
        raise LoadError(f"tensor {name!r} is missing from the head, or is no matrix")
    rows, cols = tensors[name].shape
    return rows, cols


def draft_vocab_of(said: Mapping[str, object], tensors: Mapping[str, Tensor], words: Tensor | None, vocab: int) -> int:
    """How many words an EAGLE-3 head speaks: rows of its end; without one it must speak all of the target's."""
    told = [said.get(key) for key in ("draft_vocab_size", "truncated_vocab_size")]
    if "lm_head.weight" in tensors:
        return sides(tensors, "lm_head.weight")[0]
    if words is not None or any(size not in (None, vocab) for size in told):
        sides(tensors, "lm_head.weight")  # says that it is missing
    return vocab


def made(**values: Any) -> RecurrentConfig:
    """The config of these values; LoadError for values that cannot be."""
    try:
        return RecurrentConfig(**values)
    except SpecError as error:
        raise LoadError(f"the head's config cannot be: {error}") from error
