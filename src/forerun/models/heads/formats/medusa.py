"""Medusa heads: FasterDecoding's `medusa_lm_head.pt` (and .safetensors), heads inside a Medusa-2 model, vLLM's form.

In the first, "{i}.{j}.linear.weight" is block j of head i and the last "{i}.{n}.weight" its vocabulary end; the tensors
decide how many there are, since published configs do not always say the same. vLLM's has blocks.{i}.layers.{j} and
lm_heads.{i}, or one `lm_head` for all, and `token_map` for the words of a reduced vocabulary, in any order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from forerun.core.errors import LoadError, SpecError
from forerun.models.heads.config import MedusaConfig
from forerun.models.heads.formats.safeai import floats
from forerun.models.heads.head import Head
from forerun.models.heads.packed import EndRows
from forerun.models.heads.words import check_words, whole

_BLOCK = re.compile(r"(?:.*medusa_head\.)?(\d+)\.(\d+)\.linear\.(weight|bias)")
_END = re.compile(r"(?:.*medusa_head\.)?(\d+)\.(\d+)\.weight")
_VLLM_BLOCK = re.compile(r"blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)")
_VLLM_END = re.compile(r"lm_heads\.(\d+)\.weight")
_SETTLED = ("medusa_num_heads", "medusa_num_layers", "num_heads", "original_lm_head", "medusa_fc_bias")
"""Options that the tensors settle."""
_SERVING = ("version", "max_paths", "topk", "max_seq_len")
_MODEL = (
    "vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "hidden_act", "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters",
)  # fmt: skip
"""Of the model that the heads are in, or were made for."""


def is_medusa(names: Mapping[str, Tensor]) -> bool:
    """Whether tensors of these names are Medusa heads."""
    return any(_BLOCK.fullmatch(name) or _VLLM_BLOCK.fullmatch(name) for name in names)


def read(said: Mapping[str, object], held: Mapping[str, Tensor], vocab: int) -> Head:
    """The heads of a config and its tensors, for a target with `vocab` rows in its table."""
    for name in (*_SETTLED, *_SERVING, *_MODEL):
        said.get(name)
    words = held.get("token_map")
    if words is not None:
        words = whole("token_map", words)
        check_words("token_map", words, vocab)
    tensors: dict[str, Tensor] = {}
    for name, value in held.items():
        if found := _BLOCK.fullmatch(name) or _VLLM_BLOCK.fullmatch(name):
            tensors[f"heads.{found[1]}.blocks.{found[2]}.{found[3]}"] = value
        elif found := _END.fullmatch(name) or _VLLM_END.fullmatch(name):
            tensors[f"heads.{found[1]}.lm_head.weight"] = value
        elif name == "lm_head.weight" and not _inside_a_model(held):
            tensors[name] = value
        elif name != "token_map" and not _inside_a_model(held):
            raise LoadError(f"tensor {name!r} has no place among Medusa heads")
    count = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("heads."))
    blocks = 1 + max(int(name.split(".")[3]) for name in tensors if ".blocks." in name)
    end = next((value for name, value in tensors.items() if name.endswith("lm_head.weight")), None)
    rows = vocab if end is None else len(end)
    config = MedusaConfig(
        vocab_size=vocab, target_size=tensors["heads.0.blocks.0.weight"].shape[0], draft_vocab=rows, count=count,
        blocks=blocks, bias="heads.0.blocks.0.bias" in tensors, shared_end="lm_head.weight" in tensors,
    )  # fmt: skip
    return Head(config, dict(tensors), words if config.reduced else None)


def _inside_a_model(held: Mapping[str, Tensor]) -> bool:
    return any("medusa_head." in name for name in held)


def write(head: Head, folder: Path, end_rows: EndRows, base: str) -> None:
    """The heads as `medusa_lm_head.safetensors`; in vLLM's form if they know fewer words than the target."""
    c = head.config
    if not isinstance(c, MedusaConfig):
        raise SpecError(f"Medusa's form is for medusa heads, this is {c.kind}")
    tensors = floats(head, end_rows)
    said: dict[str, Any] = {"base_model_name_or_path": base}
    if c.reduced or c.shared_end:
        said |= {
            "model_type": "medusa", "architectures": ["MedusaModel"], "hidden_size": c.target_size,
            "num_heads": c.count, "num_hidden_layers": c.blocks, "vocab_size": c.vocab_size,
            "truncated_vocab_size": c.draft_vocab, "original_lm_head": c.shared_end, "medusa_fc_bias": c.bias,
        }  # fmt: skip
        named = {
            re.sub(r"heads\.(\d+)\.blocks\.(\d+)\.", r"blocks.\1.layers.\2.", name): v for name, v in tensors.items()
        }
        named = {re.sub(r"heads\.(\d+)\.lm_head\.", r"lm_heads.\1.", name): value for name, value in named.items()}
        if head.words is not None:
            named["token_map"] = head.words
        file = "model.safetensors"
    else:
        said |= {"medusa_num_heads": c.count, "medusa_num_layers": c.blocks, "version": "2"}
        named = {re.sub(r"heads\.(\d+)\.blocks\.(\d+)\.", r"\1.\2.linear.", name): v for name, v in tensors.items()}
        named = {re.sub(r"heads\.(\d+)\.lm_head\.", rf"\1.{c.blocks}.", name): value for name, value in named.items()}
        file = "medusa_lm_head.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous().clone() for name, value in named.items()}, folder / file, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
