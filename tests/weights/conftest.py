"""Tiny models on disk, written by independent writers: the gguf package's GGUFWriter and safetensors' save_file."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

HIDDEN, HEADS, KV, DIM, INTER, VOCAB, LAYERS = 64, 4, 2, 16, 96, 40, 2
Weights = dict[str, torch.Tensor]


def weights(*, tied: bool = True, seed: int = 0, bias: bool = False) -> Weights:
    """Random weights of a two-layer model under Hugging Face names."""
    g = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g)

    out = {"model.embed_tokens.weight": draw(VOCAB, HIDDEN), "model.norm.weight": draw(HIDDEN)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        rows = {"q": HEADS * DIM, "k": KV * DIM, "v": KV * DIM}
        for part, size in rows.items():
            out[f"{at}self_attn.{part}_proj.weight"] = draw(size, HIDDEN)
            if bias:
                out[f"{at}self_attn.{part}_proj.bias"] = draw(size)
        out[f"{at}self_attn.o_proj.weight"] = draw(HIDDEN, HEADS * DIM)
        out |= {f"{at}mlp.{p}_proj.weight": draw(INTER, HIDDEN) for p in ("gate", "up")}
        out[f"{at}mlp.down_proj.weight"] = draw(HIDDEN, INTER)
        out |= {f"{at}{n}.weight": draw(HIDDEN) for n in ("input_layernorm", "post_attention_layernorm")}
    if not tied:
        out["lm_head.weight"] = draw(VOCAB, HIDDEN)
    return out


CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INTER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
}
_GGUF = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def permute(rows: np.ndarray, heads: int) -> np.ndarray:
    """What the published converter does to q and k of llama models."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def gguf_name(name: str) -> str:
    name = name.replace("model.embed_tokens", "token_embd").replace("lm_head", "output")
    if name == "model.norm.weight":
        return "output_norm.weight"
    name = name.replace("model.layers.", "blk.")
    for ours, theirs in _GGUF.items():
        name = name.replace(ours, theirs)
    return name


Kind = gguf.GGMLQuantizationType


def write_gguf(
    path: Path,
    tensors: Weights | None = None,
    *,
    arch: str = "llama",
    kind: Callable[[str], Kind] = lambda name: Kind.F32,
    edit: Callable[[gguf.GGUFWriter], object] = lambda w: None,
    omit: tuple[str, ...] = (),
) -> Path:
    tensors = weights() if tensors is None else tensors
    writer = gguf.GGUFWriter(path, arch)
    facts = {
        "block_count": LAYERS, "context_length": 128, "embedding_length": HIDDEN, "feed_forward_length": INTER,
        "attention.head_count": HEADS, "attention.head_count_kv": KV, "rope.dimension_count": DIM,
    }  # fmt: skip
    for key, value in facts.items():
        if key not in omit:
            writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32(f"{arch}.rope.freq_base", 10000.0)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 2)
    writer.add_uint32("tokenizer.ggml.eot_token_id", 7)
    edit(writer)
    for name, tensor in tensors.items():
        values = tensor.numpy()
        if arch == "llama" and (".q_proj." in name or ".k_proj." in name):
            values = permute(values, HEADS if ".q_proj." in name else KV)
        as_kind = kind(name) if values.ndim == 2 else Kind.F32
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, as_kind), raw_dtype=as_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_folder(
    folder: Path, tensors: Weights | None = None, *, shards: int = 1, config: Mapping[str, object] | None = None
) -> Path:
    folder.mkdir(exist_ok=True)
    tensors = weights() if tensors is None else tensors
    (folder / "config.json").write_text(json.dumps(CONFIG if config is None else dict(config)))
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    names = sorted(tensors)
    files = {n: f"model-{i % shards + 1:05d}-of-{shards:05d}.safetensors" for i, n in enumerate(names)}
    for file in set(files.values()):
        save_file({n: tensors[n] for n in names if files[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return folder


class Tiny:
    """The builders above, as one fixture."""

    weights = staticmethod(weights)
    gguf = staticmethod(write_gguf)
    folder = staticmethod(write_folder)
    config = CONFIG
    sizes = (HIDDEN, HEADS, KV, DIM, INTER, VOCAB, LAYERS)


@pytest.fixture(scope="session")
def tiny() -> type[Tiny]:
    return Tiny
