"""EAGLE-1/2/3 folders in SafeAILab's form, with the spellings of SpecForge, SGLang and vLLM.

`config.json` beside pytorch_model.bin or safetensors. EAGLE-3's layer is called `midlayer` (`layers.0` in SpecForge's
and vLLM's files). Rotations, head_dim and norms are the head's own config's, never the target's. EAGLE-1 has no final
norm and speaks through the target's vocabulary end; a copy of the target's embedding in its file is not looked at.
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
    default_taps,
    draft_vocab_of,
    layer_config,
    layer_sizes,
    made,
    sides,
    taps_of,
)
from forerun.models.heads.formats.words import d2t_t2d, words_of
from forerun.models.heads.head import Head, Stored
from forerun.models.heads.packed import EndRows


def read(said: Mapping[str, object], held: Mapping[str, Tensor], layers: int) -> Head:
    """The head of a config and its tensors; `layers` of the target settle its taps where the config does not."""
    tensors = {plain_name(name): value for name, value in held.items()}
    words = words_of(tensors.pop("d2t", None), tensors.pop("t2d", None))
    if not _joins_taps(tensors):
        for own in ("lm_head.weight", "embed_tokens.weight"):
            tensors.pop(own, None)
        return Head(_eagle1(said, tensors), dict(tensors))
    if "mask_hidden" in tensors:
        tensors["mask_hidden"] = tensors["mask_hidden"].flatten()
    config = _eagle3(said, tensors, words, layers)
    return Head(config, dict(tensors), words if config.reduced else None)


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
    for prefix in ("draft_model.", "model."):
        name = name.removeprefix(prefix)
    return name.replace("midlayer.", "layers.0.")


def _eagle1(said: Mapping[str, object], tensors: Mapping[str, Tensor]) -> RecurrentConfig:
    values, (rows, cols) = layer_sizes(said, tensors), sides(tensors, "fc.weight")
    return made(**values, kind="eagle", target_size=cols - rows, draft_vocab=values["vocab_size"])


def _eagle3(
    said: Mapping[str, object], tensors: Mapping[str, Tensor], words: Tensor | None, layers: int
) -> RecurrentConfig:
    values, taps, read = layer_sizes(said, tensors), taps_of(said, layers), Fields(said)
    parallel = "mask_hidden" in tensors  # SpecForge's P-EAGLE
    return made(
        **values,
        kind="p-eagle" if parallel else "eagle3",
        mask_id=_mask_id(said) if parallel else None,
        taps=taps,
        target_size=read.integer("target_hidden_size", 1, 1 << 17, default=sides(tensors, "fc.weight")[1] // len(taps)),
        own_embedding="embed_tokens.weight" in tensors,
        draft_vocab=draft_vocab_of(said, tensors, words, values["vocab_size"]),
        norm_before_residual=read.flag("norm_before_residual", default=False),
    )


def _mask_id(said: Mapping[str, object]) -> int:
    """The mask token: at the top, or where vLLM looks for it."""
    inner = said.get("dflash_config")
    places = (said, inner if isinstance(inner, Mapping) else {})
    for name in ("mask_token_id", "ptd_token_id", "pard_token"):
        for place in places:
            if name in place:
                return Fields(place).integer(name, 0, 1 << 22)
    return Fields(said).integer("mask_token_id", 0, 1 << 22)


def write(head: Head, folder: Path, layers: int, end_rows: EndRows) -> None:
    """An EAGLE-3 head in this form, floats as they are; `end_rows` are the target's, for a head without an end.

    SpecError for a head that the form cannot say.
    """
    c = head.config
    if not isinstance(c, RecurrentConfig) or c.kind != "eagle3":
        raise SpecError(f"SafeAILab's form is for eagle3 heads, this is {c.kind}")
    odd = [name for name in ("norm_before_fc", "fc_norm", "norm_output") if getattr(c, name)]
    if odd or c.layers > 1:
        raise SpecError(f"SafeAILab's form has no {odd[0] if odd else 'second layer'}: write the speculators form")
    said: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        **layer_config(c),
        "draft_vocab_size": c.draft_vocab,
    }
    if c.norm_before_residual:
        said["norm_before_residual"] = True
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
