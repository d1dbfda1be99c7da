"""One description for each family of decoders: what tells it from the others, as data.

Both runtimes, the packers, the loaders of folders and of GGUF files, the trainer and the tiny models of tests read it.
A family that differs in nothing they do not know is an entry of FAMILIES and no more; docs/adding-a-family.md adds one.

A layer's tensors have roles, the same in every family; a role that a family lacks is left out, so that what a layer
computes follows from what it has (`models/layer.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Activation = Literal["silu", "gelu_tanh"]
"""Of the gate in the MLP; gelu_tanh is GELU by its approximation with tanh, Hugging Face's gelu_pytorch_tanh."""

Windows = Literal["none", "all", "switch", "pattern"]
"""Which layers have the window `sliding_window`: none; all; with `use_sliding_window` those of `layer_types`, else from
`max_window_layers` on; those of `layer_types`, else all but every sixth (`sliding_window_pattern`)."""

Names = dict[str, tuple[str, str]]
"""Of a layer's tensors by role: Hugging Face's name and GGUF's, without what all have in common (`model.layers.3.`,
`blk.3.`, `.weight`)."""

LAYER: Names = {
    "attention_norm": ("input_layernorm", "attn_norm"),
    "q": ("self_attn.q_proj", "attn_q"),
    "k": ("self_attn.k_proj", "attn_k"),
    "v": ("self_attn.v_proj", "attn_v"),
    "o": ("self_attn.o_proj", "attn_output"),
    "mlp_norm": ("post_attention_layernorm", "ffn_norm"),
    "gate": ("mlp.gate_proj", "ffn_gate"),
    "up": ("mlp.up_proj", "ffn_up"),
    "down": ("mlp.down_proj", "ffn_down"),
}
"""Llama's."""

QK_NORM: Names = {"q_norm": ("self_attn.q_norm", "attn_q_norm"), "k_norm": ("self_attn.k_norm", "attn_k_norm")}
"""Norms of each head's queries and keys, before they are rotated."""

TOP: Names = {
    "embedding": ("model.embed_tokens", "token_embd"),
    "norm": ("model.norm", "output_norm"),
    "head": ("lm_head", "output"),
}
"""Tensors outside the layers, with their whole names; a tied head is the embedding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """One family. Defaults are Llama's."""

    name: str
    """Hugging Face's model_type."""
    classes: tuple[str, ...]
    """What config.json may call it under `architectures`."""
    gguf: str
    """GGUF's general.architecture."""
    layer: Names
    activation: Activation = "silu"
    activation_key: str = "hidden_act"
    """Where config.json has its name."""
    norm_shift: float = 0.0
    """Added to every norm's weight as Hugging Face's files hold it; GGUF files hold the sum."""
    embedding_scaled: bool = False
    """Whether embeddings are multiplied by the root of their width."""
    query_scale_key: str | None = None
    """Where config.json has the number whose root divides attention scores; without one it is the head's width."""
    query_scale_layers: tuple[int, ...] = ()
    """Numbers of layers of models in GGUF, which do not say that number, for which it is hidden_size / heads."""
    head_dim: int | None = None
    """Default of `head_dim`; None is hidden_size / num_attention_heads."""
    max_len: int | None = None
    """Default of `max_position_embeddings`."""
    tied: bool = False
    """Default of `tie_word_embeddings`."""
    qkv_bias: bool = False
    """Default of `attention_bias`."""
    o_follows: bool = True
    """Whether `attention_bias` is the output's too."""
    mlp_bias: bool = False
    """Whether its files may have biases in the MLP."""
    windows: Windows = "none"
    window: int = 4096
    """Default of `sliding_window`."""
    local_theta: float | None = None
    """Rotary base of layers with a window (default of `rope_local_base_freq`); None: all layers have one rotation."""
    theta: float = 10000.0
    """Default of `rope_theta`."""
    interleaved: bool = False
    """Whether GGUF files keep the rows of q and k for a rotation of neighbours."""
    refused: tuple[str, ...] = ()
    """Keys of config.json, and of GGUF's metadata, that must be absent, null, false or 0: what they ask for is not
    implemented."""


_LLAMA = Arch(
    name="llama", classes=("LlamaForCausalLM", "LlamaModel"), gguf="llama", layer=LAYER, mlp_bias=True,
    interleaved=True,
)  # fmt: skip
_MISTRAL = Arch(
    name="mistral", classes=("MistralForCausalLM", "MistralModel"), gguf="llama", layer=LAYER, windows="all",
    interleaved=True,
)  # fmt: skip
_QWEN2 = Arch(
    name="qwen2", classes=("Qwen2ForCausalLM", "Qwen2Model"), gguf="qwen2", layer=LAYER, qkv_bias=True,
    o_follows=False, windows="switch",
)  # fmt: skip
_QWEN3 = Arch(
    name="qwen3", classes=("Qwen3ForCausalLM", "Qwen3Model"), gguf="qwen3", layer=LAYER | QK_NORM, head_dim=128,
    windows="switch",
)  # fmt: skip
_GEMMA3 = Arch(
    name="gemma3_text",
    classes=("Gemma3ForCausalLM", "Gemma3TextModel"),
    gguf="gemma3",
    layer=LAYER | QK_NORM | {
        "attention_out_norm": ("post_attention_layernorm", "post_attention_norm"),
        "mlp_norm": ("pre_feedforward_layernorm", "ffn_norm"),
        "mlp_out_norm": ("post_feedforward_layernorm", "post_ffw_norm"),
    },
    activation="gelu_tanh",
    activation_key="hidden_activation",
    norm_shift=1.0,
    embedding_scaled=True,
    query_scale_key="query_pre_attn_scalar",
    query_scale_layers=(62,),
    head_dim=256,
    max_len=131072,
    tied=True,
    windows="pattern",
    theta=1e6,
    local_theta=1e4,
    refused=("attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention"),
)  # fmt: skip

FAMILIES: dict[str, Arch] = {arch.name: arch for arch in (_LLAMA, _MISTRAL, _QWEN2, _QWEN3, _GEMMA3)}
"""Every family by Hugging Face's model_type."""

ACTIVATIONS: Mapping[Activation, tuple[str, ...]] = {
    "silu": ("silu",), "gelu_tanh": ("gelu_pytorch_tanh",),
}  # fmt: skip
"""Names that config.json has for an activation, the usual one first."""


def of_gguf(name: object) -> tuple[Arch, ...]:
    """Families whose files have this name of an architecture; where there are two, the second has windows."""
    return tuple(arch for arch in FAMILIES.values() if arch.gguf == name)


def family_of(config: Mapping[str, object]) -> Arch | None:
    """The family that a config.json says it is of; None if it is none of ours.

    `architectures` outdoes `model_type` where the class is not one of ours: then the model is another thing.
    """
    kind, classes = config.get("model_type"), config.get("architectures")
    if isinstance(classes, list) and classes:
        found = next((arch for arch in FAMILIES.values() if str(classes[0]) in arch.classes), None)
        if found is None or kind is None:
            return found
    return FAMILIES.get(kind) if isinstance(kind, str) else None
