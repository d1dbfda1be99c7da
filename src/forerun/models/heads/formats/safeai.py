"""EAGLE-1/2/3 folders in SafeAILab's form, with the spellings of SpecForge, SGLang, ModelOpt and vLLM.

`config.json` beside pytorch_model.bin or safetensors. EAGLE-3's layer is called `midlayer` (`layers.0` in SpecForge's
and vLLM's files); the options of EAGLE-3.1 stand at the top or in `eagle_config`. Rotations, head_dim and norms are the
head's own config's, never the target's. EAGLE-1 has no final norm and speaks through the target's vocabulary end; a
copy of the target's embedding or end in its file is not looked at. vLLM's form of it has the layer's config in `model`,
and in its file norms that it does not use.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from forerun.core.errors import SpecError
from forerun.models.fields import Fields
from forerun.models.heads.config import RecurrentConfig
from forerun.models.heads.formats.configs import (
    NORMS,
    default_taps,
    draft_vocab_of,
    layer_config,
    layer_sizes,
    made,
    norms_of,
    sides,
    tap_width,
    taps_of,
    tied_end,
)
from forerun.models.heads.formats.words import d2t_t2d, words_of
from forerun.models.heads.head import Head, Stored
from forerun.models.heads.packed import EndRows
from forerun.models.heads.words import check_words, whole

_VLLM = "EAGLEModel"
_UNUSED = ("norm.weight", "layers.0.input_layernorm.weight")  # by EAGLE-1 in vLLM's form


def read(said: Mapping[str, object], held: Mapping[str, Tensor], layers: int, width: int | None = None) -> Head:
    """The head of a config and its tensors; `layers` and `width` of the target settle its taps where the config does
    not."""
    tensors = {plain_name(name): value for name, value in held.items()}
    if not _joins_taps(tensors):
        return _eagle1(said, tensors)
    values = layer_sizes(said, tensors)
    words = words_of(tensors.pop("d2t", None), tensors.pop("t2d", None), values["vocab_size"])
    if "mask_hidden" in tensors:
        tensors["mask_hidden"] = tensors["mask_hidden"].flatten()
    tied_end(Fields(said).flag("tie_word_embeddings", default=False), tensors, words)
    taps, parallel = taps_of(said, layers), "mask_hidden" in tensors  # SpecForge's P-EAGLE
    if Fields(said).flag("parallel_drafting", default=parallel) != parallel:
        raise Fields(said).bad("parallel_drafting", "true with mask_hidden in the file, false without")
    config = made(
        **values, **norms_of(said, tensors, before_residual=False), kind="p-eagle" if parallel else "eagle3", taps=taps,
        **mask_fields(said, tensors, parallel), target_size=tap_width(said, tensors, taps, width),
        draft_vocab=draft_vocab_of(said, tensors, words, values["vocab_size"]),
    )  # fmt: skip
    return Head(config, dict(tensors), words if config.reduced else None)


def flattened(said: Mapping[str, object]) -> Mapping[str, object]:
    """vLLM's config of an EAGLE-1 head as a flat one: what stands outside `model` counts before what is in it."""
    inner = said.get("model")
    if not isinstance(inner, Mapping):
        return said
    return {**inner, **{key: value for key, value in said.items() if key != "model"}}


def kind_of(held: Collection[str]) -> str:
    """The kind of a head with tensors of these names."""
    names = {plain_name(name) for name in held}
    if not _joins_taps(names):
        return "eagle"
    return "p-eagle" if "mask_hidden" in names else "eagle3"


def _joins_taps(names: Collection[str]) -> bool:
    """Whether it is of EAGLE-3's design, which norms features beside the embedding."""
    return "layers.0.hidden_norm.weight" in names


def plain_name(name: str) -> str:
    """A tensor's name without the prefixes of other programs."""
    while name.startswith(("draft_model.", "model.")):
        name = name.partition(".")[2]
    return name.replace("midlayer.", "layers.0.")


def _eagle1(said: Mapping[str, object], tensors: dict[str, Tensor]) -> Head:
    values, (rows, cols) = layer_sizes(said, tensors), sides(tensors, "fc.weight")
    kinds, read = said.get("architectures"), Fields(said)
    read.flag("tie_word_embeddings", default=False)
    of_vllm = isinstance(kinds, list) and _VLLM in kinds
    for name in ("lm_head.weight", "embed_tokens.weight", *(_UNUSED if of_vllm else ())):
        tensors.pop(name, None)
    size = read.integer("truncated_vocab_size", 1, values["vocab_size"], default=values["vocab_size"])
    words = tensors.pop("token_map", None) if size < values["vocab_size"] else None
    if words is not None:
        words = whole("token_map", words)
        check_words("token_map", words, values["vocab_size"])
    tensors.pop("token_map", None)
    config = made(**values, kind="eagle", target_size=cols - rows, draft_vocab=size)
    return Head(config, dict(tensors), words)


def mask_fields(said: Mapping[str, object], tensors: Mapping[str, Tensor], parallel: bool) -> dict[str, Any]:
    """Fields of RecurrentConfig about embeddings: the head's own, and the mask token's where it is a P-EAGLE head."""
    own = "embed_tokens.weight" in tensors
    masked = {"mask_id": _mask_of(said), "own_mask": own or "mask_embedding" in tensors} if parallel else {}
    return {"own_embedding": own, **masked}


def _mask_of(said: Mapping[str, object]) -> int:
    """The mask token: at the top, or where vLLM looks for it; LoadError where two places contradict each other."""
    inner = said.get("dflash_config")
    places = (said, inner if isinstance(inner, Mapping) else {})
    names = ("mask_token_id", "ptd_token_id", "pard_token")
    found = {
        Fields(place).integer(name, 0, 1 << 22) for name in names for place in places if place.get(name) is not None
    }
    if len(found) != 1:
        raise Fields(said).bad("mask_token_id", "one token", "a P-EAGLE head says which stands where none is known")
    return found.pop()


def write(head: Head, folder: Path, layers: int, end_rows: EndRows) -> None:
    """An EAGLE-3 head in this form, floats as they are; `end_rows` are the target's, for a head without an end.

    SpecError for a head that the form cannot say.
    """
    c = head.config
    if not isinstance(c, RecurrentConfig) or c.kind != "eagle3":
        raise SpecError(f"SafeAILab's form is for eagle3 heads, this is {c.kind}")
    if c.layers > 1:
        raise SpecError("SafeAILab's form has no second layer: write the speculators form")
    said: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        **layer_config(c),
        "draft_vocab_size": c.draft_vocab,
    }
    said |= {name: True for name in NORMS if getattr(c, name)}
    if c.target_size != c.hidden_size:
        said["target_hidden_size"] = c.target_size
    if c.taps != default_taps(layers):
        said["eagle_aux_hidden_state_layer_ids"] = list(c.taps)
    tensors = {name.replace("layers.0.", "midlayer."): value for name, value in floats(head, end_rows).items()}
    if head.words is not None:
        tensors |= d2t_t2d(head.words, c.vocab_size)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    (folder / "config.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def floats(head: Head, end_rows: EndRows) -> dict[str, Tensor]:
    """All tensors as floats, in the dtype that they are kept in, the target's end for one that is missing."""
    found = {name: _float(value) for name, value in head.tensors.items()}
    if not head.own_end:
        found |= dict.fromkeys(head.config.ends, end_rows(head.words))
    return found


def _float(value: Stored) -> Tensor:
    return value if isinstance(value, Tensor) else value.floats()
