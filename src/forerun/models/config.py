"""One frozen description of a network, made once from a loose Hugging Face config and checked in full.

Later code never meets a missing key, a bool where a number belongs, or a size that cannot be: every field
is type- and range-checked here, and the error names the key. Supported: llama, mistral, qwen2, qwen3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from forerun.models.elsewhere import elsewhere
from forerun.models.fields import Fields
from forerun.models.rope import Rope

Family = Literal["llama", "mistral", "qwen2", "qwen3"]
FAMILIES: tuple[str, ...] = get_args(Family)
_CLASSES = {
    f"{name}{end}": name.lower() for name in ("Llama", "Mistral", "Qwen2", "Qwen3") for end in ("ForCausalLM", "Model")
}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and switches of a decoder; `windows[i]` is layer i's attention window in tokens, None for all.

    A token sees itself and the `window - 1` before it. `max_len` is max_position_embeddings as published:
    it is not stretched by rotary scaling.
    """

    family: Family
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_len: int
    norm_eps: float
    rope: Rope
    windows: tuple[int | None, ...]
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied: bool
    hidden_act: Literal["silu"] = "silu"

    @classmethod
    def from_hf(cls, config: Mapping[str, object]) -> "ModelConfig":
        """A checked ModelConfig from config.json (or from GGUF metadata in its form); LoadError names the key."""
        family = _family(config)
        read = Fields(config)
        if (quantised := config.get("quantization_config")) is not None:
            method = quantised.get("quant_method") if isinstance(quantised, Mapping) else None
            by = f"weights quantised by {method}" if method else "quantised weights"
            raise read.bad("quantization_config", "absent", f"{by}: use the unquantised folder or a GGUF file")
        if config.get("hidden_act", "silu") != "silu":
            raise read.bad("hidden_act", "'silu'", f"this activation is not implemented; {elsewhere(config)}")
        layers = read.integer("num_hidden_layers", 1, 1024)
        heads = read.integer("num_attention_heads", 1, 1024)
        kv_heads = read.integer("num_key_value_heads", 1, 1024, default=heads)
        hidden = read.integer("hidden_size", 2, 1 << 17)
        max_len = read.integer("max_position_embeddings", 1, 1 << 25)
        if heads % kv_heads:
            raise read.bad("num_key_value_heads", f"a divisor of num_attention_heads = {heads}")
        bias = read.flag("attention_bias", default=family == "qwen2")
        return cls(
            family=family,
            vocab_size=read.integer("vocab_size", 1, 1 << 22),
            hidden_size=hidden,
            intermediate_size=read.integer("intermediate_size", 1, 1 << 20),
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=_head_dim(read, family, hidden, heads),
            max_len=max_len,
            norm_eps=read.number("rms_norm_eps", 0.0, 1.0, default=1e-6),
            rope=Rope.from_hf(config, max_len),
            windows=_windows(read, family, layers),
            qkv_bias=bias,
            o_bias=read.flag("attention_out_bias", default=bias and family != "qwen2"),
            mlp_bias=read.flag("mlp_bias", default=False),
            qk_norm=family == "qwen3",
            tied=read.flag("tie_word_embeddings", default=False),
        )

    def matrix_values(self, layers: int) -> int:
        """Values of the matrices that a forward of so many layers reads whole: theirs and the head's, not an input
        table of its own."""
        attention = 2 * (self.heads + self.kv_heads) * self.head_dim
        return layers * self.hidden_size * (attention + 3 * self.intermediate_size) + self.vocab_size * self.hidden_size


def _family(config: Mapping[str, object]) -> Family:
    got = config.get("model_type")
    classes = config.get("architectures")
    if isinstance(classes, list) and classes:
        if str(classes[0]) not in _CLASSES:
            raise Fields(config).bad("architectures", ", ".join(_CLASSES), elsewhere(config))
        got = _CLASSES[str(classes[0])] if got is None else got
    if got in get_args(Family):
        return cast(Family, got)
    raise Fields(config).bad("model_type", ", ".join(FAMILIES), elsewhere(config))


def _head_dim(read: Fields, family: Family, hidden: int, heads: int) -> int:
    default = 128 if family == "qwen3" else hidden // heads
    if read.missing("head_dim") and family != "qwen3" and hidden % heads:
        raise read.bad("hidden_size", f"a multiple of num_attention_heads = {heads}, or give head_dim")
    got = read.integer("head_dim", 2, 1024, default=default)
    if got % 2:
        raise read.bad("head_dim", "an even number", "rotary embedding turns pairs")
    return got


def _windows(read: Fields, family: Family, layers: int) -> tuple[int | None, ...]:
    if family == "llama":
        return (None,) * layers
    window = None if read.null("sliding_window") else read.integer("sliding_window", 1, 1 << 25, default=4096)
    if family == "mistral":
        return (window,) * layers
    if window is None or not read.flag("use_sliding_window", default=False):
        return (None,) * layers
    kinds = read.raw("layer_types")
    if kinds is None:
        full = read.integer("max_window_layers", 0, 1 << 20, default=28)
        return tuple(window if i >= full else None for i in range(layers))
    allowed = {"full_attention": None, "sliding_attention": window}
    if not isinstance(kinds, list) or len(kinds) != layers or any(k not in tuple(allowed) for k in kinds):
        raise read.bad("layer_types", f"a list of {layers} of {', '.join(allowed)}")
    return tuple(allowed[k] for k in kinds)
