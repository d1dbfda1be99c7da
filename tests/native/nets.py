"""Networks of random shape with random weights in any packed format, and the memory and bookkeeping to run them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forerun.arch import FAMILIES, QK_NORM
from forerun.models.config import ModelConfig
from forerun.models.native import network
from forerun.models.rope import Rope
from forerun.native import _ext

BLOCK = 16
KVS = ("f32", "bf16", "int8")


def here() -> list[str]:
    """Instruction sets that run on this machine; the emulation of AMX is one everywhere."""
    return [name for name in _ext.isas() if _ext.isa_runs(name)]


def config(draw: random.Random, format: str, **changes: Any) -> ModelConfig:
    """A small decoder of random sizes; block formats need inner sizes that are whole blocks."""
    unit = {"q8_0": 32, "q4_0": 32, "q4_1": 32, "nf4": 64}.get(format, 2)
    dims = [dim for dim in (2, 6, 8, 16, 20, 32, 64, 72) if (4 * dim) % unit == 0]
    dim, kv_heads = draw.choice(dims), draw.choice((1, 2, 4))
    heads = 4 * draw.choice((1, 1, 2))
    layers = draw.choice((1, 2, 2, 3))
    window = draw.choice((None, None, 3, 16, 21))
    arch = FAMILIES[draw.choice(("llama", "llama", "qwen3", "gemma3_text"))]
    sizes: dict[str, Any] = dict(
        arch=arch, vocab_size=draw.choice((31, 64, 97, 130)), layers=layers, heads=heads, kv_heads=kv_heads,
        hidden_size=unit * draw.randrange(1, 1 + 160 // unit), head_dim=dim, max_len=512, norm_eps=1e-5,
        intermediate_size=max(unit, 16) * draw.randrange(1, 6) - (0 if unit > 2 else draw.randrange(16)),
        rope=Rope(10000.0, 512), windows=tuple(draw.choice((None, window)) for _ in range(layers)),
        qkv_bias=draw.random() < 0.5, o_bias=draw.random() < 0.3, mlp_bias=draw.random() < 0.3,
        tied=draw.random() < 0.5, local_rope=Rope(100.0, 512) if arch.local_theta else None,
        attention_scale=draw.choice((None, 0.3)),
    )  # fmt: skip
    return ModelConfig(**{**sizes, **changes})


@dataclass(frozen=True)
class Entry:
    format: str
    rows: int
    cols: int
    offset: int


class Packed:
    """Random weights of about `scale` for a config in one format, under the names that a packed model has."""

    def __init__(self, config: ModelConfig, format: str, seed: int = 0, scale: float = 1.0) -> None:
        c, inner = config, -(-config.intermediate_size // 16) * 16
        self.format = format
        self._random = np.random.default_rng(seed)
        self._scale = scale
        self._vectors: dict[str, np.ndarray] = {"norm": self._norm(c.hidden_size)}
        shapes = dict.fromkeys(("head", *(() if c.tied else ("embedding",))), (c.vocab_size, c.hidden_size))
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        for i in range(c.layers):
            own = {"qkv": (q + 2 * kv, c.hidden_size), "o": (c.hidden_size, q)}
            own |= {"gate_up": (2 * inner, c.hidden_size), "down": (c.hidden_size, inner)}
            shapes |= {f"{i}.{name}": shape for name, shape in own.items()}
            for role in (role for role in c.arch.layer if role.endswith("norm")):
                self._vectors[f"{i}.{role}"] = self._norm(c.head_dim if role in QK_NORM else c.hidden_size)
            biased = {"qkv": c.qkv_bias, "o": c.o_bias, "gate_up": c.mlp_bias, "down": c.mlp_bias}
            for name, rows in ((name, own[name][0]) for name, wanted in biased.items() if wanted):
                self._vectors[f"{i}.{name}.bias"] = 0.2 * self._random.standard_normal(rows, np.float32)
        self._pack(shapes)

    def _norm(self, size: int) -> np.ndarray:
        return 1 + 0.2 * self._random.standard_normal(size, np.float32)

    def _pack(self, shapes: dict[str, tuple[int, int]]) -> None:
        sizes = {name: _ext.packed_bytes(self.format, *shape) for name, shape in shapes.items()}
        self.arena = _ext.Arena(sum(sizes.values()))
        self._entries, at = {}, 0
        for name, (rows, cols) in shapes.items():
            random_matrix(self.format, rows, cols, self._random, self.arena.view()[at : at + sizes[name]], self._scale)
            self._entries[name] = Entry(self.format, rows, cols, at)
            at += sizes[name]

    def __contains__(self, name: str) -> bool:
        return name in self._entries or name in self._vectors

    def matrix(self, name: str) -> Entry:
        return self._entries[name]

    def vector(self, name: str) -> np.ndarray:
        return self._vectors[name]

    def values(self, name: str) -> np.ndarray:
        """The values [N, K] of a matrix."""
        entry = self._entries[name]
        size = _ext.packed_bytes(entry.format, entry.rows, entry.cols)
        packed = self.arena.view()[entry.offset : entry.offset + size]
        return _ext.unpack(entry.format, entry.rows, entry.cols, packed)


def random_matrix(format: str, rows: int, cols: int, rng: Any, out: np.ndarray, scale: float = 1.0) -> None:
    """Pack [rows, cols] random values of about 1 / sqrt(cols), times `scale`, into `out`."""
    size = scale / np.sqrt(cols)
    if format in ("f32", "bf16"):
        matrix = (size * rng.standard_normal((rows, cols))).astype(np.float32)
        if format == "f32":
            return _ext.pack_f32(matrix, out)
        return _ext.pack_bf16((matrix.view(np.uint32) >> 16).astype(np.uint16), out)
    spread = size * rng.uniform(0.5, 1.5, (rows, max(1, cols // (64 if format == "nf4" else 32))))
    if format == "int8":
        codes = rng.integers(-127, 128, (rows, cols)).astype(np.int8)
        return _ext.pack_int8(codes, (spread[:, 0] / 64).astype(np.float32), out)
    if format == "nf4":
        codes = rng.integers(0, 16, (rows, cols)).astype(np.uint8)
        return _ext.pack_nf4(codes, (2 * spread).astype(np.float32), out)
    low, high, step = (-128, 128, 64) if format == "q8_0" else (0, 16, 4)
    codes = rng.integers(low, high, (rows, cols)).astype(np.int8)
    d = (spread / step).astype(np.float16)
    m = (-7.5 * d).astype(np.float16) if format == "q4_1" else None
    return _ext.pack_blocks(format, codes, d, m, out)


@dataclass
class Held:
    """One sequence: the tokens whose keys and values lie in memory for good, and the blocks they lie in."""

    blocks: list[int]
    tokens: list[int] = field(default_factory=list)

    def slot(self, index: int) -> int:
        return self.blocks[index // BLOCK] * BLOCK + index % BLOCK


@dataclass
class Feed:
    """Certain tokens, then nodes of a tree from `seen` on."""

    held: Held
    certain: list[int]
    tokens: list[int]
    parents: list[int]
    seen: int = 0

    def path(self, node: int) -> list[int]:
        """Tokens from the root to a node."""
        path = []
        while node >= 0:
            path.append(self.tokens[node])
            node = self.parents[node]
        return path[::-1]


class Bench:
    """A network with its memory, and a plain run of it to compare with."""

    def __init__(self, packed: Packed, config: ModelConfig, isa: str, kv: str, blocks: int = 96) -> None:
        self.config, self.kv = config, kv
        options = dict(layers=config.layers, vocab=config.vocab_size, max_len=512, isa=isa)
        self.program = network(packed, config, **options, taps=(config.layers - 1, config.layers))
        self.memory = self._memory(blocks)
        self._free = random.Random(blocks).sample(range(blocks), blocks)
        self._plain: dict[tuple[int, ...], Any] = {}
        self._single = network(packed, config, **options)

    def _memory(self, blocks: int) -> Any:
        return _ext.KV(self.config.layers, self.config.kv_heads, self.config.head_dim, blocks, self.kv)

    def sequence(self, length: int = 256) -> Held:
        """A sequence with room for so many tokens, in blocks that lie anywhere."""
        return Held([self._free.pop() for _ in range(-(-length // BLOCK))])

    def run(self, feeds: list[Feed]) -> tuple[np.ndarray, list[int], np.ndarray]:
        """One forward; certain tokens are held from then on."""
        tokens, items = [], []
        for feed in feeds:
            tokens += [*feed.certain, *feed.tokens[feed.seen :]]
            start = len(feed.held.tokens)
            items.append((start, len(feed.certain), feed.seen, feed.parents, feed.held.blocks))
        result = self.program.run(self.memory, tokens, items)
        for feed in feeds:
            feed.held.tokens += feed.certain
        return result

    def commit(self, feed: Feed, nodes: list[int]) -> None:
        """Hold the nodes of a path, root first."""
        start = len(feed.held.tokens)
        pairs = [(start + node, start + i) for i, node in enumerate(nodes) if node != i]
        self.memory.move([feed.held.slot(a) for a, _ in pairs], [feed.held.slot(b) for _, b in pairs])
        feed.held.tokens += [feed.tokens[node] for node in nodes]

    def plain(self, tokens: list[int]) -> np.ndarray:
        """The row after these tokens, read one at a time on one thread, in a memory of their own."""
        known = tuple(tokens)
        if known not in self._plain:
            threads = _ext.threads()
            _ext.set_threads(1)
            memory, blocks = self._memory(-(-len(tokens) // BLOCK)), list(range(-(-len(tokens) // BLOCK)))
            for at, token in enumerate(tokens):
                rows, best, _ = self._single.run(memory, [token], [(at, 0, 0, [-1], blocks)])
                self._plain.setdefault(known[: at + 1], (rows[0], best[0]))
            _ext.set_threads(threads)
        return self._plain[known]

    def check(self, feeds: list[Feed], rows: np.ndarray, best: list[int], held: list[list[int]]) -> None:
        """Every row has the bits of plain decoding of its own path; `held` are the tokens held before the forward."""
        at = 0
        for feed, before in zip(feeds, held, strict=True):
            for node in range(feed.seen, len(feed.tokens)):
                row, first = self.plain([*before, *feed.certain, *feed.path(node)])
                same = rows[at].tobytes() == row.tobytes()
                off = np.abs(rows[at] - row).max()
                assert same, f"node {node} of {len(feed.tokens)} after {len(before)} tokens: off by {off}"
                assert best[at] == first == int(row.argmax())
                at += 1
        assert at == len(rows)
