"""A multi-token-prediction module under Qwen3-Next's names, for the dense families that we run.

`mtp.fc` joins [embedding ; hidden], each normed before; `mtp.layers.0` is a layer of the target's own kind. Norms weigh
by their weight, as in Llama, not by one more than it, as in Qwen3-Next itself. `d2t` and `t2d` are beside them where
the module speaks fewer words, `mtp.lm_head.weight` where it has an end of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from forerun.core.errors import SpecError
from forerun.models.heads.config import RecurrentConfig
from forerun.models.heads.formats.configs import layer_config, layer_sizes, made, sides
from forerun.models.heads.formats.words import d2t_t2d, words_of
from forerun.models.heads.head import Head, Rows8

_NAMES = {"pre_fc_norm_embedding.weight": "enorm.weight", "pre_fc_norm_hidden.weight": "hnorm.weight"}


def is_mtp(names: Mapping[str, Tensor]) -> bool:
    """Whether tensors of these names hold such a module."""
    return "mtp.fc.weight" in names


def read(said: Mapping[str, object], held: Mapping[str, Tensor]) -> Head:
    """The module of a config and its tensors; what else a whole model's file holds is left alone."""
    tensors = {name.removeprefix("mtp."): value for name, value in held.items() if name.startswith("mtp.")}
    tensors = {_NAMES.get(name, name): value for name, value in tensors.items()}
    words = words_of(held.get("d2t"), held.get("t2d"))
    values, (rows, cols) = layer_sizes(said, tensors), sides(tensors, "fc.weight")
    draft_vocab = values["vocab_size"] if words is None else len(words)
    config = made(**values, kind="mtp", target_size=cols - rows, draft_vocab=draft_vocab)
    return Head(config, dict(tensors), words)


def write(head: Head, folder: Path) -> None:
    """The module in this form, floats as they are."""
    c = head.config
    if not isinstance(c, RecurrentConfig) or c.kind != "mtp":
        raise SpecError(f"this form is for mtp modules, this head is {c.kind}")
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
    said = {**layer_config(c), "mtp_num_hidden_layers": c.layers, "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
