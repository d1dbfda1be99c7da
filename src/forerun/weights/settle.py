"""Where a config and its tensors contradict each other: a tensor that is there wins, and a note says so.

A head that differs from the embedding is no tied one; biases that are there are added; sizes are those of the tensors,
as far as these leave no doubt. What is missing is never made up, and what cannot be decided stays as the config says,
so that whoever takes the tensors refuses them by name.
"""

from collections.abc import Callable, Mapping
from itertools import zip_longest

import torch

from forerun.arch import Arch, family_of
from forerun.core.errors import LoadError
from forerun.weights.source import StoredSource

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
_LAYER = "model.layers.0."
_ATTENTION = f"{_LAYER}self_attn."


def settle(config: Mapping[str, object], source: StoredSource) -> tuple[dict[str, object], tuple[str, ...]]:
    """The config as the tensors say it, and what was changed and why; LoadError for a model without a head."""
    settled, arch = _Settled(config), family_of(config)
    if arch and EMBEDDING in source.names():
        _head(settled, arch, source)
        _biases(settled, arch, source.names())
        _sizes(settled, arch, source)
    return settled.config, tuple(settled.notes)


class _Settled:
    """A config that is being corrected, and the notes about it."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self.config = dict(config)
        self.notes: list[str] = []

    def number(self, key: str) -> int | None:
        """A positive whole number of the config."""
        got = self.config.get(key)
        return got if isinstance(got, int) and not isinstance(got, bool) and got > 0 else None

    def put(self, key: str, value: int) -> None:
        """A size as the tensors have it, with a note if the config has another; one that is no size is not repaired."""
        said = self.config.get(key)
        if self.number(key) not in (None, value) or said is None:
            self.notes.append(f"the config says {key} {said or 'nothing'}, the tensors have {value}: {value} counts")
            self.config[key] = value


def _head(settled: _Settled, arch: Arch, source: StoredSource) -> None:
    tied, there = settled.config.get("tie_word_embeddings", arch.tied or None), HEAD in source.names()
    if tied is True and there and not same_values(source, EMBEDDING, HEAD):
        settled.config["tie_word_embeddings"] = False
        settled.notes.append(
            f"the config says tie_word_embeddings true, but {HEAD} is not the embedding: it is the head"
        )
    if tied in (None, False) and not there:
        raise LoadError(
            f"tensor {HEAD!r} is missing, and the config does not say tie_word_embeddings: true: this is a model "
            "without a language head (or a wrong config); take the model with its head"
        )


def _biases(settled: _Settled, arch: Arch, names: frozenset[str]) -> None:
    config = settled.config
    qkv = config.get("attention_bias", arch.qkv_bias)
    out = config.get("attention_out_bias", qkv is True and arch.o_follows)
    for key, said, parts in (
        ("attention_bias", qkv, ("q", "k", "v")),
        ("attention_out_bias", out, ("o",)),
        ("mlp_bias", config.get("mlp_bias"), ("gate", "up", "down")),
    ):
        if not said and any(f".{part}_proj.bias" in name for part in parts for name in names):
            config.setdefault("attention_out_bias", out)  # whose default is what attention_bias says
            config[key] = True
            biases = " and ".join(f"{part}_proj" for part in parts)
            flag = key.replace("_out", "")  # that one is ours
            settled.notes.append(
                f"the config does not say {flag} true, but the file has biases of {biases}: they count"
            )


def _sizes(settled: _Settled, arch: Arch, source: StoredSource) -> None:
    def shape(name: str) -> tuple[int, ...]:
        got = source.shape(name) if name in source.names() else ()
        return got if len(got) == 2 else (0, 0)

    rows, hidden = shape(EMBEDDING)
    if rows and (settled.config.get("tie_word_embeddings", arch.tied) is True or shape(HEAD) == (rows, hidden)):
        settled.put("vocab_size", rows)
    inner = shape(f"{_LAYER}mlp.gate_proj.weight")[0]
    if inner and shape(f"{_LAYER}mlp.down_proj.weight")[1] == inner == shape(f"{_LAYER}mlp.up_proj.weight")[0]:
        settled.put("intermediate_size", inner)
    _attention(settled, arch, shape, source)


def _attention(settled: _Settled, arch: Arch, shape: Callable[[str], tuple[int, ...]], source: StoredSource) -> None:
    q, k = (shape(f"{_ATTENTION}{part}_proj.weight")[0] for part in "qk")
    heads, kv_heads = settled.number("num_attention_heads"), settled.number("num_key_value_heads")
    hidden, said = settled.number("hidden_size"), settled.number("head_dim")
    if not (q and k and heads and hidden):
        return
    default = arch.head_dim or hidden // heads
    norm = source.shape(f"{_ATTENTION}q_norm.weight") if f"{_ATTENTION}q_norm.weight" in source.names() else ()
    if len(norm) == 1:
        dim = norm[0]
    elif q == heads * (said or default):
        dim = said or default
    elif said is None and q % heads == 0 and k * heads == q * (kv_heads or heads):
        dim = q // heads  # both head counts agree on it
    else:
        return
    if dim < 1 or q % dim or k % dim or (q // dim) % (k // dim):
        return
    if dim != (said or default):
        settled.put("head_dim", dim)
    settled.put("num_attention_heads", q // dim)
    if k // dim != (kv_heads or q // dim):
        settled.put("num_key_value_heads", k // dim)


def same_values(source: StoredSource, one: str, other: str) -> bool:
    """Whether two matrices hold the same numbers; stops where they differ."""
    if source.shape(one) != source.shape(other):
        return False
    pairs = zip_longest(source.chunks(one), source.chunks(other))
    return all(a is not None and b is not None and torch.equal(a, b) for a, b in pairs)
