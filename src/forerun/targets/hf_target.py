"""Any causal language model of transformers as a target: what our own networks do not cover, at transformers' speed.

One cache and one forward a sequence: a batch gains nothing here. A model is tried on a short text when the target is
made: one whose state cannot be cut back (recurrent, hybrid) is refused then and by name, not at the first request, and
trees are offered only if a tree's rows come out as its paths' do. Where the rotary factors change with the length
(LongRoPE), each row has those of a plain forward over its own path; a cache of the other factors is read anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from forerun.cache.pool import Table, Usage
from forerun.cache.view import Part
from forerun.core.draft import Tree
from forerun.core.errors import BrokenInvariant, CapacityError, LoadError, SpecError, unknown
from forerun.core.notes import give
from forerun.core.plan import MAX_NODES
from forerun.core.protocols import ModelSpec
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.core.work import Item, Work
from forerun.targets.hf_cache import HfCache
from forerun.targets.hf_model import HfModel
from forerun.targets.hf_rotary import reach_of
from forerun.targets.hf_trial import offers_trees
from forerun.targets.holding import Holding
from forerun.targets.load import DTYPES, usable_device

KEPT = 4  # caches of ended sequences that a next turn may continue
WORTH = 16  # tokens in common that are worth a copy


class HfTarget:
    """A `Target` over a loaded transformers model.

    `vocab_size` counts real ids (None: the config's); `kv_tokens` bounds all caches together, kept ones included (None:
    `KEPT` contexts); `reuse` keeps the caches of the last `KEPT` ended sequences. Taps are indices of `hidden_states`.
    Raises SpecError for a model that cannot be a target or a size that it has not, CapacityError for too few kv_tokens.
    """

    def __init__(
        self,
        model: Any,
        *,
        name: str = "",
        vocab_size: int | None = None,
        kv_tokens: int | None = None,
        max_len: int | None = None,
        reuse: bool = True,
    ) -> None:
        config = model.config.get_text_config()
        longest = int(getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", 0) or 2048)
        self._model = HfModel(model)
        reach = reach_of(model, longest)
        self._switch, longest = reach.switch or longest, reach.end or longest
        self._open: dict[Seq, Holding] = {}
        self._caches: dict[Seq, HfCache] = {}
        self._room: dict[Seq, int] = {}
        self._kept: list[tuple[list[int], HfCache]] = []  # oldest first
        self._kept_most = KEPT if reuse else 0
        name = name or str(getattr(config, "_name_or_path", "")) or type(model).__name__
        if max_len is not None and not 1 <= max_len <= longest:
            raise SpecError(f"max_len is {max_len}, the model reaches {longest} tokens: allowed 1..{longest}")
        if kv_tokens is not None and kv_tokens < (max_len or 1):
            raise CapacityError(
                f"kv_tokens {kv_tokens} cannot hold one sequence of max_len {max_len or 1}: raise it or lower max_len"
            )
        max_len = max_len or min(longest, kv_tokens or longest)
        rows = int(config.vocab_size)
        if vocab_size is not None and not 1 <= vocab_size <= rows:
            raise SpecError(f"vocab_size {vocab_size} does not fit {name}'s table of {rows} rows: allowed 1..{rows}")
        trees = offers_trees(self._model, name, min(longest, self._switch))
        self._spec = ModelSpec(
            name=name,
            vocab_size=vocab_size or rows,
            max_len=max_len,
            hidden_size=int(config.hidden_size),
            layers=int(config.num_hidden_layers),
            dtype=str(model.dtype).removeprefix("torch."),
            device=str(model.device),
            fingerprint=self._model.fingerprint(),
            trees=trees,
            weight_bytes=self._model.weight_bytes(),
        )
        self.kv_tokens = kv_tokens or KEPT * (self._spec.max_len + MAX_NODES)

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    @property
    def usage(self) -> Usage:
        """Tokens in use or reserved, kept for a next turn, and free."""
        used, kept = sum(self._room.values()), sum(len(tokens) for tokens, _ in self._kept)
        return Usage(used, kept, self.kv_tokens - used - kept)

    def beside(self, *, kv_tokens: int | None = None) -> HfTarget:
        """The same model with memory of its own, so that nothing but the weights is shared."""
        twin = copy(self)
        twin._open, twin._caches, twin._room, twin._kept = {}, {}, {}, []
        twin.kv_tokens = kv_tokens or self.kv_tokens
        return twin

    def begin(self, seq: Seq) -> int:
        if seq in self._open:
            raise BrokenInvariant(f"{seq} is open already: release it before it begins again")
        shared = [_common(tokens, seq.tokens) for tokens, _ in self._kept]
        held = max(shared, default=0)
        cache = self._kept[shared.index(held)][1].head(held) if held >= WORTH else HfCache()
        held = len(cache)
        self._open[seq], self._caches[seq], self._room[seq] = Holding(seq.tokens[:held]), cache, held
        return held

    def held(self, seq: Seq) -> int:
        return self._holding(seq).held

    def reserve(self, seq: Seq, tokens: int) -> bool:
        wanted = max(self._room[seq], self._holding(seq).held + tokens)
        others = sum(self._room.values()) - self._room[seq]
        if others + wanted > self.kv_tokens:
            return False
        self._room[seq] = wanted
        while self.usage.free < 0:
            self._kept.pop(0)
        return True

    def score(self, work: Work, keep: bool = False, taps: Sequence[int] = ()) -> Rows:
        self.spec.check_taps(taps)
        for item in work:
            holding, end = self._holding(item.seq), item.stop + len(item.nodes)
            holding.check(item, keep, self.spec.max_len)
            if not self.spec.trees and not item.nodes.is_chain:
                raise SpecError(f"{self.spec.name} can only score chains: use a drafter or a plan of width 1")
            if not self.reserve(item.seq, end - holding.held):
                raise CapacityError(f"no room for {end} tokens of {item.seq} within kv_tokens = {self.kv_tokens}")
        outs = [self._feed(item, taps) for item in work]
        logits = torch.cat([logits for logits, _ in outs]) if outs else torch.empty(0, self.spec.vocab_size)
        hidden = [hidden for _, hidden in outs if hidden is not None]
        return Rows(work, logits, self.spec.vocab_size, torch.cat(hidden) if hidden else None)

    def commit(self, seqs: Sequence[Seq], paths: Sequence[Sequence[int]]) -> None:
        for seq, path in zip(seqs, paths, strict=True):
            holding = self._holding(seq)
            nodes = holding.standing(tuple(path))
            self._caches[seq].gather(holding.held, nodes)
            holding.settle(nodes)
            self._room[seq] = holding.held

    def truncate(self, seq: Seq, length: int) -> None:
        holding = self._holding(seq)
        if not 0 <= length <= holding.held:
            raise BrokenInvariant(f"{seq} has {holding.held} tokens held and cannot be cut to {length}")
        del holding.tokens[length:]
        holding.settle([])
        self._caches[seq].cut(length)
        self._room[seq] = length

    def release(self, seq: Seq) -> None:
        holding, cache = self._open.pop(seq, None), self._caches.pop(seq, None)
        self._room.pop(seq, None)
        if self._kept_most and holding and cache and holding.held <= len(cache):
            cache.cut(holding.held)
            others = [kept for kept in self._kept if kept[0] != holding.tokens[: len(kept[0])]]
            self._kept = [*others, (holding.tokens, cache)][-self._kept_most :]

    def _holding(self, seq: Seq) -> Holding:
        if seq not in self._open:
            raise BrokenInvariant(f"{seq} is not open in {self.spec.name}: begin it first")
        return self._open[seq]

    def _feed(self, item: Item, taps: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        """One sequence's forward: its fresh nodes' logits [n, V], and the tapped states of all fed tokens."""
        cache, fed = self._caches[item.seq], len(item.certain) + item.fresh
        if not fed:
            width = len(taps) * self.spec.hidden_size
            return torch.empty(0, self.spec.vocab_size), torch.empty(0, width) if width else None
        late = self._late(item)
        if late != cache.late:  # keys that were turned by other factors: they are read anew
            cache.cut(0)
        logits, hidden = self._forward(item, cache, taps)
        cache.late = late
        if late:
            logits = self._with_early_rows(item, logits)
        self._open[item.seq].feed(item)
        return logits, None if hidden is None else hidden[-fed:]

    def _with_early_rows(self, item: Item, logits: Tensor) -> Tensor:
        """`logits` [n, V] of the fresh nodes, those before the switch replaced by a forward that ends there."""
        early = [n for n, depth in enumerate(item.nodes.depths()) if item.stop + depth < self._switch]
        if not early or early[-1] < item.seen:
            return logits
        of = {node: at for at, node in enumerate(early)}
        parents = (-1, *(of[item.nodes.parents[node]] for node in early[1:]))
        nodes = Tree(tuple(item.nodes.tokens[node] for node in early), parents)
        rows, _ = self._forward(Item(item.seq, 0, item.stop, nodes), HfCache())
        fresh = range(item.seen, len(item.nodes))
        return torch.stack([rows[of[node]] if node in of else logits[node - item.seen] for node in fresh])

    def _late(self, item: Item) -> bool:
        """Whether a forward over `item` reaches where the rotary factors switch."""
        return item.stop + (item.nodes.depth if item.tree else -1) >= self._switch

    def _forward(self, item: Item, cache: HfCache, taps: Sequence[int] = ()) -> tuple[Tensor, Tensor | None]:
        """A forward over `item` after what the cache holds of it, all of it if that is nothing."""
        start, seen = (item.start, item.seen) if len(cache) else (0, 0)
        cache.cut(start + seen)
        part = Part(Table(), start, item.stop - start, item.nodes, seen)
        tokens = [*item.seq.tokens[start : item.stop], *item.nodes.tokens[seen:]]
        return self._model.forward(tokens, cache, None if item.nodes.is_chain else part, item.fresh, taps)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Tokens that both begin with, the last of `b` not counted: it must still be fed."""
    length = min(len(a), len(b) - 1)
    return next((i for i in range(length) if a[i] != b[i]), max(0, length))


def load(
    path: Path,
    *,
    vocab_size: int | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    kv_tokens: int | None = None,
    max_len: int | None = None,
    reuse: bool = True,
    corrected: Mapping[str, object] = MappingProxyType({}),
) -> HfTarget:
    """A target over the model in a folder (or a .gguf file that transformers can read); `corrected` are values of a
    folder's config that its tensors contradict.

    Raises SpecError without transformers or for a model that cannot be a target, LoadError for files that do not load
    whole: weights that a file lacks are never made up.
    """
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    model = _read(path, DTYPES[dtype], corrected).to(usable_device(device))
    return HfTarget(model, name=path.name, vocab_size=vocab_size, kv_tokens=kv_tokens, max_len=max_len, reuse=reuse)


def _read(path: Path, dtype: torch.dtype, corrected: Mapping[str, object]) -> Any:
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError as error:
        raise SpecError("this target needs transformers: pip install 'forerun[hf]'") from error
    folder = path.parent if path.suffix == ".gguf" else path
    options: dict[str, Any] = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
    try:
        if corrected:
            options["config"] = config = AutoConfig.from_pretrained(folder, local_files_only=True)
            for key, value in corrected.items():
                setattr(config, key, value)
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, output_loading_info=True, **options
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise LoadError(f"transformers cannot load {path}: {str(error).splitlines()[0][:200]}") from error
    if missing := sorted(info.get("missing_keys", ())):
        raise LoadError(f"{path} lacks {len(missing)} weight(s), first {missing[0]!r}: it does not fit its config")
    if left := sorted(info.get("unexpected_keys", ())):
        give([f"{path.name}: transformers does not read {len(left)} of the tensors, first {left[0]!r}"])
    return model
