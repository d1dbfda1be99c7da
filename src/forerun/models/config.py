"""One frozen description of a network, made once from a loose Hugging Face config and checked in full.

Later code never meets a missing key, a bool where a number belongs, or a size that cannot be: every field
is type- and range-checked here, and the error names the key. What tells families apart is read in `forerun.arch`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from forerun.arch import ACTIVATIONS, FAMILIES, Activation, Arch, family_of
from forerun.models.elsewhere import elsewhere
from forerun.models.fields import Fields
from forerun.models.rope import Rope


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and switches of a decoder; `windows[i]` is layer i's attention window in tokens, None for all.

    A token sees itself and the `window - 1` before it. `max_len` is max_position_embeddings as published:
    it is not stretched by rotary scaling.
    """

    arch: Arch
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
    tied: bool
    local_rope: Rope | None
    """How positions turn in layers with a window, where that is another way."""
    attention_scale: float | None
    """What attention scores are multiplied by; None is the root of head_dim, inverted."""

    @property
    def activation(self) -> Activation:
        """Of the gate in the MLP."""
        return self.arch.activation

    @property
    def embedding_scale(self) -> float:
        """What embeddings are multiplied by."""
        return float(self.hidden_size**0.5) if self.arch.embedding_scaled else 1.0

    def rope_of(self, layer: int) -> Rope:
        """How positions turn in a layer."""
        return self.local_rope if self.local_rope and self.windows[layer] else self.rope

    @classmethod
    def from_hf(cls, config: Mapping[str, object]) -> "ModelConfig":
        """A checked ModelConfig from config.json (or from GGUF metadata in its form); LoadError names the key."""
        arch = _arch(config)
        read = Fields(config)
        if (quantised := config.get("quantization_config")) is not None:
            method = quantised.get("quant_method") if isinstance(quantised, Mapping) else None
            by = f"weights quantised by {method}" if method else "quantised weights"
            raise read.bad("quantization_config", "absent", f"{by}: use the unquantised folder or a GGUF file")
        _refuse(read, arch, config)
        layers = read.integer("num_hidden_layers", 1, 1024)
        heads = read.integer("num_attention_heads", 1, 1024)
        kv_heads = read.integer("num_key_value_heads", 1, 1024, default=heads)
        hidden = read.integer("hidden_size", 2, 1 << 17)
        max_len = read.integer("max_position_embeddings", 1, 1 << 25, default=arch.max_len)
        if heads % kv_heads:
            raise read.bad("num_key_value_heads", f"a divisor of num_attention_heads = {heads}")
        bias = read.flag("attention_bias", default=arch.qkv_bias)
        head_dim = _head_dim(read, arch, hidden, heads)
        rope, local_rope = _ropes(config, arch, max_len)
        return cls(
            arch=arch,
            vocab_size=read.integer("vocab_size", 1, 1 << 22),
            hidden_size=hidden,
            intermediate_size=read.integer("intermediate_size", 1, 1 << 20),
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            max_len=max_len,
            norm_eps=read.number("rms_norm_eps", 0.0, 1.0, default=1e-6),
            rope=rope,
            windows=_windows(read, arch, layers),
            qkv_bias=bias,
            o_bias=read.flag("attention_out_bias", default=bias and arch.o_follows),
            mlp_bias=read.flag("mlp_bias", default=False),
            tied=read.flag("tie_word_embeddings", default=arch.tied),
            local_rope=local_rope,
            attention_scale=_attention_scale(read, arch, head_dim),
        )

    def matrix_values(self, layers: int) -> int:
        """Values of the matrices that a forward of so many layers reads whole: theirs and the head's, not an input
        table of its own."""
        attention = 2 * (self.heads + self.kv_heads) * self.head_dim
        return layers * self.hidden_size * (attention + 3 * self.intermediate_size) + self.vocab_size * self.hidden_size


def _arch(config: Mapping[str, object]) -> Arch:
    if (found := family_of(config)) is not None:
        return found
    classes = config.get("architectures")
    if isinstance(classes, list) and classes and family_of({"architectures": classes}) is None:
        known = ", ".join(arch.classes[0] for arch in FAMILIES.values())
        raise Fields(config).bad("architectures", known, elsewhere(config))
    raise Fields(config).bad("model_type", ", ".join(FAMILIES), elsewhere(config))


def _refuse(read: Fields, arch: Arch, config: Mapping[str, object]) -> None:
    names, key = ACTIVATIONS[arch.activation], arch.activation_key
    if not read.missing(key) and read.raw(key) not in names:
        allowed = ", ".join(map(repr, names))
        raise read.bad(key, allowed, f"this activation is not implemented; {elsewhere(config)}")
    for key in arch.refused:
        if read.raw(key):
            raise read.bad(key, "nothing", f"this is not implemented; {elsewhere(config)}")


def _attention_scale(read: Fields, arch: Arch, head_dim: int) -> float | None:
    if arch.query_scale_key is None:
        return None
    under = read.number(arch.query_scale_key, 0.0, 1e6, default=float(head_dim))
    return None if under == head_dim else float(under**-0.5)


def _ropes(config: Mapping[str, object], arch: Arch, max_len: int) -> tuple[Rope, Rope | None]:
    """Of all layers, and of those with a window if it is another one.

    transformers 5 has both in `rope_parameters`, by kind of layer; before, the second was `rope_local_base_freq`.
    """
    if arch.local_theta is None:
        return Rope.from_hf(config, max_len, arch.theta), None
    both = config.get("rope_parameters")
    if not isinstance(both, Mapping) or not {"full_attention", "sliding_attention"} & set(both):
        local: object = {"rope_theta": config.get("rope_local_base_freq")}
    else:
        local = both.get("sliding_attention")
        config = {**config, "rope_scaling": None, "rope_parameters": both.get("full_attention")}
    alone = {**config, "rope_theta": None, "rope_scaling": None, "rope_parameters": local}
    return Rope.from_hf(config, max_len, arch.theta), Rope.from_hf(alone, max_len, arch.local_theta)


def _head_dim(read: Fields, arch: Arch, hidden: int, heads: int) -> int:
    if read.missing("head_dim") and arch.head_dim is None and hidden % heads:
        raise read.bad("hidden_size", f"a multiple of num_attention_heads = {heads}, or give head_dim")
    got = read.integer("head_dim", 2, 1024, default=arch.head_dim or hidden // heads)
    if got % 2:
        raise read.bad("head_dim", "an even number", "rotary embedding turns pairs")
    return got


def _windows(read: Fields, arch: Arch, layers: int) -> tuple[int | None, ...]:
    if arch.windows == "none":
        return (None,) * layers
    window = None if read.null("sliding_window") else read.integer("sliding_window", 1, 1 << 25, default=arch.window)
    if arch.windows == "all":
        return (window,) * layers
    if window is None or (arch.windows == "switch" and not read.flag("use_sliding_window", default=False)):
        return (None,) * layers
    kinds = read.raw("layer_types")
    if kinds is None:
        if arch.windows == "pattern":
            every = read.integer("sliding_window_pattern", 1, 1 << 20, default=6)
            return tuple(None if (i + 1) % every == 0 else window for i in range(layers))
        full = read.integer("max_window_layers", 0, 1 << 20, default=28)
        return tuple(window if i >= full else None for i in range(layers))
    allowed = {"full_attention": None, "sliding_attention": window}
    if not isinstance(kinds, list) or len(kinds) != layers or any(k not in tuple(allowed) for k in kinds):
        raise read.bad("layer_types", f"a list of {layers} of {', '.join(allowed)}")
    return tuple(allowed[k] for k in kinds)
