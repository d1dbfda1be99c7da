"""Tiny random models in real files: a Hugging Face folder or a GGUF, with a tokenizer, a second to make.

They speak nonsense, deterministically, and load through the same code as the big ones. The tokenizer has one token a
byte, one merge and three special tokens, so any text can be asked; the tables are padded, as real models' are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from forerun.arch import ACTIVATIONS, FAMILIES, QK_NORM, TOP, Arch
from forerun.core.errors import unknown
from forerun.models.config import ModelConfig
from forerun.models.layer import shapes

MERGE = ("t", "h")
REAL = 260  # 256 bytes, one merge, three special tokens
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Tiny:
    """Shape of a tiny model. `extra` holds further keys of its config.json (rope_scaling, sliding_window, …)."""

    family: str = "llama"
    layers: int = 2
    hidden: int = 32
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    inner: int = 48
    vocab: int = 264
    max_len: int = 256
    tied: bool = True
    seed: int = 0
    sharpness: float = 6.0
    """Scale of the last norm: larger makes the next token surer."""
    extra: Mapping[str, object] = field(default_factory=dict)

    def config(self) -> dict[str, object]:
        """The config.json."""
        arch = self.arch
        return {
            "architectures": [arch.classes[0]],
            "model_type": self.family,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "max_position_embeddings": self.max_len,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            arch.activation_key: ACTIVATIONS[arch.activation][0],
            "tie_word_embeddings": self.tied,
            "bos_token_id": 258,
            "eos_token_id": 259,
            **({arch.query_scale_key: self.head_dim} if arch.query_scale_key else {}),
            **self.extra,
        }

    @property
    def arch(self) -> Arch:
        """The family; SpecError if there is none of that name."""
        if self.family not in FAMILIES:
            raise unknown("family", self.family, FAMILIES)
        return FAMILIES[self.family]

    def tensors(self) -> dict[str, Tensor]:
        """Random float32 weights under Hugging Face's names; the same for the same seed."""
        generator, config = torch.Generator().manual_seed(self.seed), ModelConfig.from_hf(self.config())

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        def norm(size: int, scale: float = 1.0) -> Tensor:
            return (1 + 0.1 * random(size)) * scale - self.arch.norm_shift

        tensors = {"model.embed_tokens.weight": random(self.vocab, self.hidden)}
        for i in range(self.layers):
            found = shapes(config, self.arch.layer)
            names = {role: f"model.layers.{i}.{self.arch.layer[role][0]}" for role in found}
            matrices = [role for role, (shape, _) in found.items() if len(shape) == 2]
            for role in matrices:
                rows, columns = found[role][0]
                tensors[f"{names[role]}.weight"] = random(rows, columns) * (1 / math.sqrt(columns))
            heads = [role for role in found if role in QK_NORM]
            for role in (role for role in found if role not in matrices and role not in heads):
                tensors[f"{names[role]}.weight"] = norm(self.hidden)
            for role in (role for role in matrices if found[role][1]):
                tensors[f"{names[role]}.bias"] = 0.2 * random(found[role][0][0])
            for role in heads:
                tensors[f"{names[role]}.weight"] = norm(self.head_dim)
        tensors["model.norm.weight"] = norm(self.hidden, self.sharpness / math.sqrt(self.hidden))
        if not self.tied:
            tensors["lm_head.weight"] = random(self.vocab, self.hidden)
        return tensors


def write_folder(path: Path, tiny: Tiny | None = None, *, tokenizer: bool = True) -> Path:
    """Write a Hugging Face folder (config, one safetensors file, tokenizer with a chat template) and return it."""
    tiny = tiny or Tiny()
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(tiny.config()))
    save_file(tiny.tensors(), path / "model.safetensors")
    if tokenizer:
        (path / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
        (path / "tokenizer_config.json").write_text(
            json.dumps({"bos_token": SPECIALS[1], "eos_token": SPECIALS[2], "chat_template": TEMPLATE})
        )
    return path


def byte_letters() -> list[str]:
    """The printable letter that byte-level BPE writes for each byte, GPT-2's table."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in plain}
    others = (byte for byte in range(256) if byte not in letters)
    letters |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


def tokenizer_json() -> dict[str, object]:
    """A byte-level tokenizer: token id = byte, then one merge, then the special tokens."""
    vocab = {letter: byte for byte, letter in enumerate([*byte_letters(), "".join(MERGE)])}
    added = [
        {
            "id": 257 + i,
            "content": text,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for i, text in enumerate(SPECIALS)
    ]
    level: dict[str, object] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocab,
            "merges": [list(MERGE)],
        },
    }


def write_gguf(path: Path, tiny: Tiny | None = None, *, quantization: str = "F32") -> Path:
    """Write the same model as a GGUF, its matrices in the named GGML format (rows must fit its blocks)."""
    import gguf

    tiny = tiny or Tiny()
    writer = gguf.GGUFWriter(path, tiny.arch.gguf)
    _write_metadata(writer, tiny)
    kind = gguf.GGMLQuantizationType[quantization]
    for name, tensor in tiny.tensors().items():
        data = _gguf_rows(name, tensor, tiny).numpy().astype(np.float32)
        if tensor.ndim == 2 and quantization != "F32":
            writer.add_tensor(_gguf_name(name, tiny.arch), gguf.quants.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(_gguf_name(name, tiny.arch), data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_metadata(writer: Any, tiny: Tiny) -> None:
    writer.add_block_count(tiny.layers)
    writer.add_context_length(tiny.max_len)
    writer.add_embedding_length(tiny.hidden)
    writer.add_feed_forward_length(tiny.inner)
    writer.add_head_count(tiny.heads)
    writer.add_head_count_kv(tiny.kv_heads)
    writer.add_key_length(tiny.head_dim)
    writer.add_value_length(tiny.head_dim)
    writer.add_rope_dimension_count(tiny.head_dim)
    writer.add_rope_freq_base(10000.0)
    if window := tiny.extra.get("sliding_window"):
        writer.add_sliding_window(window)
    if cap := tiny.extra.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(cap)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(tiny.vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    padding = [f"[PAD{i}]" for i in range(REAL, tiny.vocab)]
    writer.add_token_list([*byte_letters(), "".join(MERGE), *SPECIALS, *padding])
    writer.add_token_types([1] * 257 + [3] * len(SPECIALS) + [5] * len(padding))
    writer.add_token_merges([" ".join(MERGE)])
    writer.add_bos_token_id(258)
    writer.add_eos_token_id(259)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def _gguf_name(name: str, arch: Arch) -> str:
    stem, _, kind = name.rpartition(".")
    layer, _, part = stem.removeprefix("model.layers.").partition(".")
    if not layer.isdigit():
        return f"{next(theirs for hf, theirs in TOP.values() if hf == stem)}.{kind}"
    return f"blk.{layer}.{next(theirs for hf, theirs in arch.layer.values() if hf == part)}.{kind}"


def _gguf_rows(name: str, tensor: Tensor, tiny: Tiny) -> Tensor:
    """What llama.cpp's converter makes of a tensor: it interleaves the halves of q and k rows where the family says so,
    and adds to norms what Hugging Face's code does."""
    if name.endswith("norm.weight"):
        return tensor + tiny.arch.norm_shift
    heads = {"q_proj": tiny.heads, "k_proj": tiny.kv_heads}.get(name.split(".")[-2])
    if heads is None or not tiny.arch.interleaved:
        return tensor.contiguous()
    return tensor.reshape(heads, 2, -1, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape).contiguous()
