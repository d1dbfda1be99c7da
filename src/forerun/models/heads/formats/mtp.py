"""A multi-token-prediction module under Qwen3-Next's names, for the dense families that we run, and speculators' MTP.

`mtp.fc` joins [embedding ; hidden], each normed before; `mtp.layers.0` is a layer of the target's own kind. What is
handed on to the next drafted token is the state after the final norm, as in vLLM and speculators; a module of ours that
learnt to read the one before it is written with `norm_output: false`. Norms weigh by one more than their weight where
the config is Qwen3-Next's or Qwen3.5's, else by their weight as in Llama and Qwen3. `d2t` and `t2d` are beside them
where the module speaks fewer words, `mtp.lm_head.weight` where it has an end of its own.

DeepSeek's and MiMo's modules have rules of their own and are refused by name: DeepSeek's layer is latent attention over
experts, and MiMo's module is of one further token, not to be used again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from forerun.core.errors import LoadError, SpecError
from forerun.models.fields import Fields
from forerun.models.heads.config import RecurrentConfig
from forerun.models.heads.formats.configs import layer_config, layer_sizes, made, sides
from forerun.models.heads.formats.words import d2t_t2d, words_of
from forerun.models.heads.head import Head, Rows8

_NAMES = {"pre_fc_norm_embedding.weight": "enorm.weight", "pre_fc_norm_hidden.weight": "hnorm.weight"}
_SPECULATORS = {
    "input_proj.weight": "fc.weight", "token_layernorm.weight": "enorm.weight",
    "hidden_layernorm.weight": "hnorm.weight", "final_layernorm.weight": "norm.weight",
}  # fmt: skip
_OTHERS = {
    "eh_proj.weight": "DeepSeek's (enorm, hnorm, eh_proj, shared_head)",
    "input_proj.weight": "MiMo's (token_layernorm, hidden_layernorm, input_proj)",
    "mtp_linear_proj.0.weight": "ERNIE's (mtp_emb_norm, mtp_hidden_norm, mtp_linear_proj)",
}
_ONE_MORE = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")
"""Model types whose norms weigh by one more than their weight."""


def is_mtp(names: Collection[str]) -> bool:
    """Whether tensors of these names hold such a module."""
    return "mtp.fc.weight" in names


def refuse_others(names: Collection[str]) -> None:
    """LoadError for a module of another form, by its name."""
    for ending, whose in _OTHERS.items():
        if any(name.endswith(f".{ending}") for name in names):
            raise LoadError(
                f"this multi-token-prediction module is {whose}: not implemented; Qwen3-Next's form (mtp.fc, "
                "mtp.layers.0) and speculators' are read"
            )


def read(said: Mapping[str, object], held: Mapping[str, Tensor]) -> Head:
    """The module of a config and its tensors; what else a whole model's file holds is left alone."""
    tensors = {name.removeprefix("mtp."): value for name, value in held.items() if name.startswith("mtp.")}
    tensors = {_NAMES.get(name, name): value for name, value in tensors.items()}
    inner = said.get("text_config")
    layer = inner if isinstance(inner, Mapping) else said
    return _module(layer, tensors, held.get("d2t"), held.get("t2d"), Fields(said).flag("norm_output", default=True))


def read_speculators(said: Mapping[str, object], layer: Mapping[str, object], tensors: Mapping[str, Tensor]) -> Head:
    """The module in speculators' form: a config, its layer's, and tensors called mtp_layers.0."""
    named = {}
    for name, value in tensors.items():
        inside = name.removeprefix("mtp_layers.0.")
        if inside != name:
            named[_SPECULATORS.get(inside, f"layers.0.{inside}")] = value
        elif name.startswith("mtp_layers."):
            named[name.replace("mtp_layers.", "layers.")] = value
        elif name not in ("embed_tokens.weight", "lm_head.weight", "d2t", "t2d"):  # the first two are the target's
            named[name] = value
    return _module(layer, named, tensors.get("d2t"), tensors.get("t2d"), after_norm=True)


def _module(
    layer: Mapping[str, object],
    tensors: dict[str, Tensor],
    d2t: Tensor | None,
    t2d: Tensor | None,
    after_norm: bool,
) -> Head:
    values = layer_sizes(layer, tensors, own_windows=False)
    rows, cols = sides(tensors, "fc.weight")
    _refuse_unlike(values["layers"], tensors, values["heads"] * values["head_dim"])
    if _one_more(layer):
        tensors = {name: value.float() + 1 if _is_norm(name) else value for name, value in tensors.items()}
    words = words_of(d2t, t2d, values["vocab_size"])
    draft_vocab = values["vocab_size"] if words is None else len(words)
    config = made(**values, kind="mtp", target_size=cols - rows, draft_vocab=draft_vocab, norm_output=after_norm)
    return Head(config, dict(tensors), words if config.reduced else None)


def _refuse_unlike(layers: int, tensors: Mapping[str, Tensor], q_rows: int) -> None:
    """LoadError for what Qwen3-Next's modules have and dense ones have not."""
    if layers > 1:
        raise LoadError(
            f"the file holds {layers} modules, one for each further token in turn: one that is used again is read"
        )
    if any(".mlp.experts." in name for name in tensors):
        raise LoadError("the module's MLP is a mixture of experts: not implemented")
    if "layers.0.self_attn.q_proj.weight" in tensors and sides(tensors, "layers.0.self_attn.q_proj.weight")[0] == (
        2 * q_rows
    ):
        raise LoadError("the module's attention is gated (q_proj is twice as wide as its heads): not implemented")


def _one_more(layer: Mapping[str, object]) -> bool:
    kinds = layer.get("architectures")
    named = [str(kind) for kind in kinds] if isinstance(kinds, list) else []
    return layer.get("model_type") in _ONE_MORE or any(kind.startswith(("Qwen3Next", "Qwen3_5")) for kind in named)


def _is_norm(name: str) -> bool:
    return name.rsplit(".", 2)[-2].endswith("norm")


def write(head: Head, folder: Path) -> None:
    """The module in this form, floats as they are; SpecError for one that the form cannot say."""
    c = head.config
    if not isinstance(c, RecurrentConfig) or c.kind != "mtp":
        raise SpecError(f"this form is for mtp modules, this head is {c.kind}")
    if c.layers > 1:
        raise SpecError(f"this form has one layer for each further token, this module {c.layers} for all")
    back = {ours: theirs for theirs, ours in _NAMES.items()}
    tensors = {
        f"mtp.{back.get(name, name)}": value.floats() if isinstance(value, Rows8) else value
        for name, value in head.tensors.items()
    }
    if head.words is not None:
        tensors |= d2t_t2d(head.words, c.vocab_size)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    said = {**layer_config(c), "mtp_num_hidden_layers": 1, "num_nextn_predict_layers": 1}
    if not c.norm_output:
        said["norm_output"] = False
    (folder / "config.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
