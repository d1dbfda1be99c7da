"""What a transformers model can be, tried on a short text rather than read off class names.

A target's rows after a cut must be those of a fresh forward; trees are offered only if a tree's rows are those of its
paths. The trial computes in float32 whatever the weights are kept in, since half precision hides what it looks for. A
window that is longer than the trial would be hidden too, so a config that speaks of one gets no trees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from forerun.cache.pool import Table
from forerun.cache.view import Part
from forerun.core.draft import Tree
from forerun.core.errors import SpecError
from forerun.targets.hf_cache import HfCache
from forerun.targets.hf_faults import FAULTS
from forerun.targets.hf_model import HfModel

LENGTH = 64
"""Tokens of the trial at most: more cost a large model time at every start, and find nothing that these do not."""

_LOCAL = re.compile(r"window|local|sliding|sparse|lsh|chunk|stride|index_|block_size")
"""Config keys of attention that does not see everything before it."""
_OTHER = re.compile(r"chunk_size_(feed_forward|lm_head)|local_experts|max_window_layers|sparse_step|mamba|local_rank")
"""Keys that look like those and mean something else."""


def offers_trees(model: HfModel, name: str, longest: int) -> bool:
    """Whether `model` scores trees; SpecError if it cannot be a target. `longest` bounds what is tried."""
    trial = _Trial(model, min(LENGTH, longest))
    if reason := trial.unfit():
        raise SpecError(
            f"{name} ({type(model.model).__name__}) cannot be a target: {reason}; use an attention-only model"
        )
    return not looks_local(model.model.config.get_text_config().to_dict()) and trial.scores_trees()


def looks_local(config: Mapping[str, object]) -> bool:
    """Whether any layer may see only part of what came before: then one mask does not do for all layers."""
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds):
        return True
    unused = ("sliding_window", "use_sliding") if kinds or config.get("use_sliding_window") is False else ()
    return any(_says_local(key, value) for key, value in config.items() if not key.startswith(unused))


def _says_local(key: str, value: object) -> bool:
    if isinstance(value, Mapping):
        return looks_local({str(name): inner for name, inner in value.items()})
    if re.match(r"attn_types?|attention_(types?|layers)", key):
        return "local" in str(value)
    return bool(value) and bool(_LOCAL.search(key)) and not _OTHER.search(key)


class _Trial:
    """Forwards over one text: a cached part, then a tree of two branches; and each branch afresh."""

    def __init__(self, model: HfModel, length: int) -> None:
        self._model = model
        size = min(model.model.config.get_text_config().vocab_size, 1 << 10)
        draw = torch.Generator().manual_seed(0)
        self._text = torch.randint(min(3, size - 1), size, (2 * length,), generator=draw).tolist()
        self._fed = max(2, 3 * length // 4)
        self._held = self._fed // 2
        self._deep = max(1, self._held // 2)
        self._branch = self._text[length : length + self._deep], self._text[-self._deep :]
        self._wide = True

    def unfit(self) -> str:
        """Why the model's cache cannot be cut back to before a refused guess; empty if it can."""
        model = self._model.model
        if model.config.is_encoder_decoder:
            return "it is an encoder-decoder, a target reads one sequence"
        if getattr(model, "_is_stateful", False):
            return "it is recurrent, and a state cannot be cut back to before a refused guess"
        try:
            try:
                with widened(self._model):
                    same = self._cut_and_feed()
            except FAULTS:
                self._wide = False  # it computes with its weights past their modules: in its own precision, then
                same = self._cut_and_feed()
        except FAULTS as error:
            first = (str(error).splitlines() or [""])[0][:100]
            return f"it does not run on a plain cache of keys and values ({type(error).__name__}: {first})"
        return "" if same else "its state cannot be cut back to before a refused guess (recurrent or hybrid layers)"

    def _cut_and_feed(self) -> bool:
        cache, plain = self._begun()
        again, _ = self._model.forward([self._text[self._held], *self._branch[0]], cache, None, self._deep + 1)
        return plain and _alike(again, self._fresh(0))

    def _begun(self) -> tuple[HfCache, bool]:
        """A cache that read on and was cut back, and whether it holds keys and values and nothing else."""
        cache = HfCache()
        self._model.forward(self._text[: self._fed], cache, None, 1)
        plain = cache.plain() and len(cache) == self._fed
        cache.cut(self._held)
        return cache, plain

    def _fresh(self, branch: int) -> Tensor:
        """Rows of the root and one branch, from an empty cache."""
        tokens = [*self._text[: self._held + 1], *self._branch[branch]]
        return self._model.forward(tokens, HfCache(), None, self._deep + 1)[0]

    def scores_trees(self) -> bool:
        """Whether the nodes of two branches, fed one after the other, have the rows of their paths."""
        if not self._wide:
            return False
        deep = self._deep
        tokens = (self._text[self._held], *self._branch[0], *self._branch[1])
        tree = Tree(tokens, (-1, *range(deep), 0, *range(deep + 1, 2 * deep)))
        try:
            with widened(self._model):
                cache, _ = self._begun()
                rows, _ = self._model.forward(tokens, cache, Part(Table(), self._held, 0, tree), len(tokens))
                first, second = self._fresh(0), self._fresh(1)
        except FAULTS:
            return False
        return _alike(rows[: deep + 1], first) and _alike(rows[deep + 1 :], second[1:])


def _alike(a: Tensor, b: Tensor) -> bool:
    """Equal up to what another order of summation does."""
    return bool((a - b).abs().max() <= 64 * torch.finfo(b.dtype).eps * b.abs().max().clamp(min=1.0))


@contextmanager
def widened(model: HfModel) -> Iterator[None]:
    """Inside, half-precision weights compute in float32: each module's are widened while its forward runs."""
    if torch.finfo(model.dtype).bits >= 32:
        yield
        return
    own, hooks = model.dtype, []
    kept: dict[Any, list[tuple[dict[str, Any], str, Tensor]]] = {}

    def widen(module: Any, args: object) -> None:
        for table in (module._parameters, module._buffers):
            for name, value in table.items():
                if value is not None and value.is_floating_point() and torch.finfo(value.dtype).bits < 32:
                    kept.setdefault(module, []).append((table, name, value))
                    table[name] = value.float()

    def narrow(module: Any, *_: object) -> None:
        for table, name, value in kept.pop(module, ()):
            table[name] = value

    for module in model.model.modules():
        hooks += [module.register_forward_pre_hook(widen), module.register_forward_hook(narrow, always_call=True)]
    model.dtype = torch.float32
    try:
        yield
    finally:
        model.dtype = own
        for hook in hooks:
            hook.remove()
        for module in list(kept):
            narrow(module)
