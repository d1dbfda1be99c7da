"""vllm-project/speculators' form of EAGLE-3, P-EAGLE and MTP heads, every flag of its schema.

`config.json` has `speculators_model_type`, the layer's own config in `transformer_layer_config`, and whom it verifies.
Older files lack `norm_before_residual`: their writer's default was true. MTP modules are only read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from forerun.core.errors import SpecError
from forerun.models.fields import Fields
from forerun.models.heads.config import RecurrentConfig
from forerun.models.heads.formats import mtp
from forerun.models.heads.formats.configs import (
    draft_vocab_of,
    layer_config,
    layer_sizes,
    made,
    norms_of,
    tap_width,
    taps_of,
    tied_end,
)
from forerun.models.heads.formats.safeai import floats, mask_fields, plain_name
from forerun.models.heads.formats.words import d2t_t2d, words_of
from forerun.models.heads.head import Head
from forerun.models.heads.packed import EndRows

KINDS = {"eagle3": "eagle3", "peagle": "p-eagle"}
_READ = {**KINDS, "mtp": "mtp"}
_TRAINING_ONLY = ("verifier_norm.weight", "verifier_lm_head.weight")


def is_speculators(said: Mapping[str, object]) -> bool:
    """Whether a config is of this form."""
    return "speculators_model_type" in said


def kind_of(said: Mapping[str, object]) -> str:
    """Our name of its kind; LoadError for a kind of speculator that is not known here."""
    kind = _READ.get(str(said.get("speculators_model_type")))
    if kind is None:
        raise Fields(said).bad("speculators_model_type", ", ".join(_READ), "this kind of speculator is not implemented")
    return kind


def read(said: Mapping[str, object], held: Mapping[str, Tensor], layers: int, width: int | None = None) -> Head:
    """The head of a config and its tensors; LoadError for a kind of speculator that is not known here."""
    kind = kind_of(said)
    inner = said.get("transformer_layer_config")
    if not isinstance(inner, Mapping):
        raise Fields(said).bad("transformer_layer_config", "an object")
    tensors = {plain_name(name): value for name, value in held.items() if name not in _TRAINING_ONLY}
    if kind == "mtp":
        return mtp.read_speculators(said, inner, tensors)
    values = layer_sizes(inner, tensors)
    words = words_of(tensors.pop("d2t", None), tensors.pop("t2d", None), values["vocab_size"])
    if "mask_hidden" in tensors:
        tensors["mask_hidden"] = tensors["mask_hidden"].flatten()
    ties = [Fields(place).flag("tie_word_embeddings", default=False) for place in (said, inner)]
    tied_end(ties[0] if said.get("tie_word_embeddings") is not None else ties[1], tensors, words)
    taps = taps_of(said, layers)
    config = made(
        **values, **norms_of(said, tensors, before_residual=True), kind=kind, taps=taps,
        **mask_fields(said, tensors, kind == "p-eagle"), target_size=tap_width(said, tensors, taps, width),
        draft_vocab=draft_vocab_of(said, tensors, words, values["vocab_size"]),
    )  # fmt: skip
    return Head(config, dict(tensors), words if config.reduced else None)


def write(
    head: Head,
    folder: Path,
    end_rows: EndRows,
    embedding: Tensor,
    verifier: str,
    architectures: Sequence[str] = ("LlamaForCausalLM",),
    version: str = "0.3.0",
) -> None:
    """The head in this form. `embedding` [V, H] is the target's, which the form always holds; `verifier` its name on
    the hub or its folder, from which the form's own loader reads it; `architectures` as its config has them.

    SpecError for kinds that the form does not know.
    """
    c = head.config
    names = {own: theirs for theirs, own in KINDS.items()}
    if not isinstance(c, RecurrentConfig) or c.kind not in names:
        raise SpecError(f"the speculators form is for {' and '.join(KINDS.values())} heads, this is {c.kind}")
    algorithm = names[c.kind]
    layer = {key: value for key, value in layer_config(c).items() if key != "tie_word_embeddings"}
    said: dict[str, Any] = {
        "architectures": ["Eagle3Speculator" if c.kind == "eagle3" else "PEagleSpeculator"],
        "speculators_model_type": algorithm, "speculators_version": version, "transformer_layer_config": layer,
        "draft_vocab_size": c.draft_vocab, "norm_before_residual": c.norm_before_residual,
        "norm_before_fc": c.norm_before_fc, "fc_norm": c.fc_norm, "norm_output": c.norm_output,
        "embed_requires_grad": c.kind == "p-eagle",
        "target_hidden_size": None if c.target_size == c.hidden_size else c.target_size,
        "eagle_aux_hidden_state_layer_ids": list(c.taps), "tie_word_embeddings": False,
        "speculators_config": {
            "algorithm": algorithm, "default_proposal_method": "greedy",
            "proposal_methods": [
                {"proposal_type": "greedy", "speculative_tokens": 5, "verifier_accept_k": 1, "accept_tolerance": 0.0}
            ],
            "verifier": {"name_or_path": verifier, "architectures": list(architectures)},
        },
    }  # fmt: skip
    tensors = floats(head, end_rows)
    table = tensors.setdefault("embed_tokens.weight", embedding.to(tensors["fc.weight"].dtype))
    if c.kind == "p-eagle":
        said["mask_token_id"] = c.mask_id
        tensors["mask_hidden"] = tensors["mask_hidden"].view(1, 1, -1)
        if (stand_in := tensors.pop("mask_embedding", None)) is not None:
            tensors["embed_tokens.weight"] = table.clone()
            tensors["embed_tokens.weight"][c.mask_id] = stand_in
    if head.words is None:
        tensors |= d2t_t2d(torch.arange(c.vocab_size), c.vocab_size)
    else:
        tensors |= d2t_t2d(head.words, c.vocab_size)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    (folder / "config.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
