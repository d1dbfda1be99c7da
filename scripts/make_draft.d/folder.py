"""The trained model as a Hugging Face folder that reads text exactly as the target does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from student import student_config, tensors
from transformers import LlamaForCausalLM

from forerun.core.errors import BrokenInvariant
from forerun.models.opening import tokenizer_of
from forerun.text.from_folder import from_folder
from forerun.weights.folder import Checkpoint


def write_folder(out: Path, checkpoint: Checkpoint, model: LlamaForCausalLM) -> None:
    """config.json, model.safetensors in bfloat16 and the tokenizer's files; BrokenInvariant if it reads otherwise."""
    out.mkdir(parents=True, exist_ok=True)
    count, biased = model.config.num_hidden_layers, model.config.mlp_bias
    _json(out / "config.json", student_config(checkpoint, count, biased))
    save_file(dict(tensors(model)), out / "model.safetensors", {"format": "pt"})
    mine = tokenizer_of(checkpoint)
    state = mine.state()
    settings = {**mine.specials, "add_bos_token": state["settings"]["add_bos"], "chat_template": mine.chat_template}
    (out / "tokenizer.json").write_text(state["backend"], encoding="utf-8")
    _json(out / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **settings})
    if difference := mine.differences(from_folder(out)):
        raise BrokenInvariant(f"the tokenizer written to {out} is not the target's: {difference}")


def _json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
