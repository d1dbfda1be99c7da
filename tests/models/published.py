"""Heads as their own programs write them, and what they compute, slowly and from the formulas: no code of ours.

A `Case` has the folder that a program would have left and the numbers in it; `logp` is the head's law of the token
after a path, every slot of every layer computed anew in float64, and `grown` and `fixed` are the trees of EAGLE-2 and
of a list of rank paths over such a law.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

import torch
from safetensors.torch import save_file

VOCAB, WIDTH, LAYERS = 48, 16, 6
HEADS, KV_HEADS, HEAD_DIM, INNER, EPS, THETA = 4, 2, 8, 20, 1e-5, 10000.0
MASK = 7
TINY_MARGIN = 1e-3
SIZES = {
    "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": INNER, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "num_hidden_layers": 1, "rms_norm_eps": EPS,
    "rope_theta": THETA, "max_position_embeddings": 64, "hidden_act": "silu", "model_type": "llama",
    "tie_word_embeddings": False, "torch_dtype": "float32", "transformers_version": "4.53.2", "use_cache": True,
    "initializer_range": 0.02, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0, "pretraining_tp": 1,
}  # fmt: skip


@dataclass
class Case:
    """One head: its files, and what they mean."""

    kind: str
    config: dict
    files: dict
    """Tensors by their published names."""
    w: dict
    """The same by plain ones."""
    layers: int = 1
    taps: tuple = ()
    words: list | None = None
    embedding: str = "target"
    end: str = "target"
    norm_before_residual: bool = False
    hands_on_normed: bool = False
    one_more: bool = False
    windows: tuple = (None, None)
    said: tuple = ()
    """Words of the notes that must come."""
    file: str = "model.safetensors"

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: value.contiguous().clone() for name, value in self.files.items()}, folder / self.file)
        (folder / "config.json").write_text(json.dumps(self.config))
        return folder


class Maker:
    """Random tensors, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.draw = torch.Generator().manual_seed(seed)

    def matrix(self, rows, cols, scale=1.0):
        return torch.randn(rows, cols, generator=self.draw) * scale * cols**-0.5

    def vector(self, size, around=0.0):
        return around + 0.3 * torch.randn(size, generator=self.draw)

    def words(self, count):
        return torch.randperm(VOCAB, generator=self.draw)[:count].tolist()

    def layer(self, at, reads, width=WIDTH, *, bias="", first_norm=True, feature_norm=False, qk=False, norm=1.0):
        """A decoder layer's tensors, named `at`...; `bias` holds the letters of what has one: q (all three), o, m."""
        q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
        sizes = {
            "self_attn.q_proj": (q, reads), "self_attn.k_proj": (kv, reads), "self_attn.v_proj": (kv, reads),
            "self_attn.o_proj": (width, q), "mlp.gate_proj": (INNER, width), "mlp.up_proj": (INNER, width),
            "mlp.down_proj": (width, INNER),
        }  # fmt: skip
        with_bias = {"q": ("q_proj", "k_proj", "v_proj"), "o": ("o_proj",), "m": ("gate_proj", "up_proj", "down_proj")}
        biased = [part for letter in bias for part in with_bias[letter]]
        found = {f"{at}{name}.weight": self.matrix(*shape) for name, shape in sizes.items()}
        found |= {
            f"{at}{name}.bias": self.vector(shape[0]) for name, shape in sizes.items() if name.split(".")[1] in biased
        }
        if first_norm:
            found[f"{at}input_layernorm.weight"] = self.vector(width, norm)
        if feature_norm:
            found[f"{at}hidden_norm.weight"] = self.vector(width, norm)
        if qk:
            found |= {f"{at}self_attn.{part}_norm.weight": self.vector(HEAD_DIM, norm) for part in "qk"}
        found[f"{at}post_attention_layernorm.weight"] = self.vector(width, norm)
        return found


def named(w, **renamed):
    """Published names of plain ones: `layers.0.` in the place of `old` and so on."""
    found = {}
    for name, value in w.items():
        for old, new in renamed.items():
            name = name.replace(old.replace("_", "."), new)
        found[name] = value
    return found


# What heads compute.


def rms(x, weight, one_more=False):
    weight = weight.double()
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * (1 + weight if one_more else weight)


def turned(x, places):
    """Queries or keys [T, heads, dim] turned by their places."""
    half = HEAD_DIM // 2
    angles = places[:, None, None] / THETA ** (torch.arange(half, dtype=torch.float64) * 2 / HEAD_DIM)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class Network:
    """A case beside a target of these embeddings [V, H] and this end [V, H]."""

    def __init__(self, case: Case, embedding, end) -> None:
        self.c = case
        self.w = {name: value.double() for name, value in case.w.items()}
        table = self.w["embed_tokens.weight"] if case.embedding == "own" else embedding.double()
        if "mask_embedding" in self.w:
            table = table.clone()
            table[MASK] = self.w["mask_embedding"]
        self.table = table
        rows = end.double() if case.words is None else end.double()[case.words]
        tied = self.table if case.words is None else self.table[case.words]
        self.end = {"target": rows, "tied": tied}.get(case.end, self.w.get("lm_head.weight"))

    def linear(self, name, x):
        y = x @ self.w[f"{name}.weight"].T
        return y + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else y

    def norm(self, name, x):
        return rms(x, self.w[f"{name}.weight"], self.c.one_more)

    def lifted(self, feature):
        """The target's feature as the head's own."""
        if self.c.kind in ("eagle", "mtp"):
            return feature
        if "input_norm.weight" in self.w:
            feature = self.norm("input_norm", feature)
        if "fc_norm.0.weight" in self.w:
            parts = feature.chunk(len(self.c.taps), -1)
            feature = torch.cat([self.norm(f"fc_norm.{i}", part) for i, part in enumerate(parts)], -1)
        return self.linear("fc", feature)

    def slots(self, tokens, features):
        """Logits and states of slots of (token, the head's own feature) that follow one another."""
        c, embedded, x = self.c, self.table[torch.tensor(tokens)], torch.stack(list(features))
        if c.kind == "eagle":
            x = self.linear("fc", torch.cat([embedded, x], -1))
            read = x
        elif c.kind == "mtp":
            x = self.linear("fc", torch.cat([self.norm("enorm", embedded), self.norm("hnorm", x)], -1))
            read = self.norm("layers.0.input_layernorm", x)
        else:
            normed = self.norm("layers.0.hidden_norm", x)
            x = normed if c.norm_before_residual else x
            read = torch.cat([self.norm("layers.0.input_layernorm", embedded), normed], -1)
        for i in range(c.layers):
            at = f"layers.{i}."
            if i:
                read = self.norm(f"{at}input_layernorm", x)
            x = x + self.attention(i, read)
            y = self.norm(f"{at}post_attention_layernorm", x)
            gate, up = self.linear(f"{at}mlp.gate_proj", y), self.linear(f"{at}mlp.up_proj", y)
            x = x + self.linear(f"{at}mlp.down_proj", gate * torch.sigmoid(gate) * up)
        last = x if c.kind == "eagle" else self.norm("norm", x)
        return last @ self.end.T, last if c.hands_on_normed else x

    def attention(self, i, read):
        at, count = f"layers.{i}.self_attn.", len(read)
        places = torch.arange(count, dtype=torch.float64)
        q, k, v = (self.linear(f"{at}{part}_proj", read).view(count, -1, HEAD_DIM) for part in "qkv")
        if f"{at}q_norm.weight" in self.w:
            q, k = self.norm(f"{at}q_norm", q), self.norm(f"{at}k_norm", k)
        q, k = turned(q, places), turned(k, places)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(HEAD_DIM)
        back = torch.arange(count)[:, None] - torch.arange(count)[None]
        sees = (back >= 0) & (back < (self.c.windows[i] or count))
        mixed = torch.einsum("hqk,khd->qhd", torch.softmax(scores.masked_fill(~sees, -torch.inf), -1), v)
        return self.linear(f"{at}o_proj", mixed.reshape(count, -1))

    def law(self, tokens, features):
        """path -> log-probabilities [V] after it; slot i of `tokens` is the token after that of features[i]."""
        features = features.double()
        if self.c.kind == "medusa":
            return self.by_depth(self.medusa(features[-1]))
        if self.c.kind == "p-eagle":
            masked = [*tokens, *[MASK] * 4]
            own = [*self.lifted(features), *[self.lifted(self.w["mask_hidden"])] * 4]
            logits, _ = self.slots(masked, own)
            return self.by_depth(logits[len(tokens) - 1 :])

        def logp(path):
            own, fed = list(self.lifted(features)), list(tokens)
            logits, states = self.slots(fed, own)
            for token in path:
                own.append(states[-1])
                fed.append(token)
                logits, states = self.slots(fed, own)
            return self.spread(logits[-1])

        return logp

    def by_depth(self, logits):
        return lambda path: self.spread(logits[len(path)])

    def medusa(self, state):
        rows, count = [], 1 + max(int(name.split(".")[0]) for name in self.w if name[0].isdecimal())
        for i in range(count):
            y = self.linear(f"{i}.block", state)
            end = self.end if self.c.end == "target" else self.w[f"{i}.end.weight"]
            rows.append(end @ (state + y * torch.sigmoid(y)))
        return torch.stack(rows)

    def spread(self, logits):
        logs = torch.log_softmax(logits, -1)
        if self.c.words is None:
            return logs
        found = torch.full((VOCAB,), -torch.inf, dtype=torch.float64)
        found[self.c.words] = logs
        return found


# Trees.


@dataclass
class Pool:
    """Paths with their scores, and how near the nearest choice was."""

    scores: dict = field(default_factory=dict)
    margin: float = math.inf

    def best(self, paths, count):
        """The likeliest of these, likeliest first."""
        ranked = sorted(paths, key=lambda path: -self.scores[path])
        if count < len(ranked):
            self.margin = min(self.margin, self.scores[ranked[count - 1]] - self.scores[ranked[count]])
        return ranked[:count]

    def children(self, path, row, count):
        """The likeliest tokens below a path, likeliest first."""
        values, tokens = row.sort(descending=True, stable=True)
        gaps = values[:count] - values[1 : count + 1]
        self.margin = min(self.margin, float(gaps.min()))
        found = [(*path, int(token)) for token in tokens[:count]]
        for value, child in zip(values.tolist(), found, strict=False):
            self.scores[child] = self.scores.get(path, 0.0) + value
        return found


def grown(logp, depth, width, nodes):
    """EAGLE-2's tree: {path: score}, and the margin of its nearest choice."""
    pool, frontier, seen = Pool(), [()], []
    for _ in range(depth):
        below = [child for path in frontier for child in pool.children(path, logp(path), width)]
        seen += below
        frontier = pool.best(below, width)
    return {path: pool.scores[path] for path in pool.best(seen, nodes)}, pool.margin


def fixed(logp, ranks, nodes):
    """The tree of these rank paths, of which the likeliest nodes are kept."""
    pool, at = Pool(), {(): ()}
    for rank in sorted({path[:-1] for path in ranks}, key=lambda path: (len(path), path)):
        count = sum(path[:-1] == rank for path in ranks)
        for i, child in enumerate(pool.children(at[rank], logp(at[rank]), count)):
            at[(*rank, i)] = child
    return {path: pool.scores[path] for path in pool.best([at[path] for path in ranks], nodes)}, pool.margin
