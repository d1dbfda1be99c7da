"""One transformers model: a forward over a cache, and the trial that says whether it can be a target at all.

Whether a state can be cut back, and whether a mask makes trees, is not read off class names but tried on four tokens:
rows after a cut must be those of a fresh forward, a tree's rows those of its paths.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from forerun.cache.pool import Table
from forerun.cache.view import Part, allowed
from forerun.core.draft import Tree
from forerun.core.errors import SpecError
from forerun.targets.hf_cache import HfCache

# What models of other people raise on a cache or mask that they do not know: tried out, not read off class names.
_FAULTS = (AttributeError, TypeError, ValueError, RuntimeError, IndexError, KeyError, NotImplementedError)


class HfModel:
    """`model`, and the `taps` that every forward returns: indices of its hidden_states."""

    def __init__(self, model: Any, taps: tuple[int, ...] = ()) -> None:
        self.model = model.eval()
        self.taps = taps
        known = inspect.signature(model.forward).parameters
        self._keeps_logits = "logits_to_keep" in known
        self._cache_name = "cache" if "cache" in known else "past_key_values"  # renamed in transformers 5

    @torch.inference_mode()
    def forward(
        self, tokens: Sequence[int], cache: HfCache, part: Part | None, rows: int
    ) -> tuple[Tensor, Tensor | None]:
        """Feed tokens after the cache: logits of the last `rows` of them [rows, V], tapped states of all.

        `part` says who sees whom and at which position, None if it is a plain chain.
        """
        device, dtype = self.model.device, self.model.dtype
        options: dict[str, Any] = {self._cache_name: cache.cache, "use_cache": True, "return_dict": True}
        if self._keeps_logits:
            options["logits_to_keep"] = max(1, rows)
        if self.taps:
            options["output_hidden_states"] = True
        if part is not None:
            mask = torch.zeros(part.end - part.first, part.end, dtype=dtype)
            mask.masked_fill_(~allowed(part, None), torch.finfo(dtype).min)
            options["attention_mask"] = mask[None, None].to(device)
            options["position_ids"] = torch.tensor([part.positions()], device=device)
        out = self.model(input_ids=torch.tensor([tokens], device=device), **options)
        hidden = torch.cat([out.hidden_states[tap][0] for tap in self.taps], -1) if self.taps else None
        return out.logits[0, out.logits.shape[1] - rows :], hidden

    def tried(self, name: str) -> bool:
        """Whether the model scores trees; SpecError if it cannot be a target."""
        reason = self._unfit()
        if reason:
            raise SpecError(
                f"{name} ({type(self.model).__name__}) cannot be a target: {reason}; use an attention-only model"
            )
        return not _windowed(self.model.config.get_text_config()) and self._scores_trees()

    def _unfit(self) -> str:
        """Why the model's cache cannot be cut back to before a refused guess; empty if it can."""
        if self.model.config.is_encoder_decoder:
            return "it is an encoder-decoder, a target reads one sequence"
        if getattr(self.model, "_is_stateful", False):
            return "it is recurrent, and a state cannot be cut back to before a refused guess"
        try:
            cache = HfCache()
            self.forward([3, 1, 2], cache, None, 3)
            plain = cache.plain() and len(cache) == 3
            cache.cut(1)
            again, _ = self.forward([0, 2], cache, None, 1)
            fresh, _ = self.forward([3, 0, 2], HfCache(), None, 1)
        except _FAULTS as error:
            first = (str(error).splitlines() or [""])[0][:100]
            return f"it does not run on a plain cache of keys and values ({type(error).__name__}: {first})"
        if not plain or not _alike(again, fresh):
            return "its state cannot be cut back to before a refused guess (recurrent or hybrid layers)"
        return ""

    def _scores_trees(self) -> bool:
        """Whether node 3 of the tree 3 -> (1, 0 -> 2) has the row of the path 3, 0, 2."""
        tree = Tree((3, 1, 0, 2), (-1, 0, 0, 2))
        try:
            row, _ = self.forward(tree.tokens, HfCache(), Part(Table(), 0, 0, tree), 1)
        except _FAULTS:
            return False
        fresh, _ = self.forward([3, 0, 2], HfCache(), None, 1)
        return _alike(row, fresh)

    def weight_bytes(self) -> int:
        """Bytes of all weights but an input table of their own."""
        table, end = self.model.get_input_embeddings(), self.model.get_output_embeddings()
        apart = end is not None and table.weight is not end.weight
        total = sum(int(value.nbytes) for value in self.model.parameters())
        return total - int(table.weight.nbytes) * apart

    def fingerprint(self) -> str:
        """16 hex digits over the config and a sample of every weight."""
        digest = hashlib.sha256(repr(sorted(self.model.config.to_diff_dict().items(), key=str)).encode())
        for name, value in self.model.named_parameters():
            digest.update(name.encode())
            digest.update(value.detach().flatten()[:16].float().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]


def _windowed(config: Any) -> bool:
    """Whether any layer looks back a limited distance; its mask then is not one for all layers."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return any(kind != "full_attention" for kind in kinds)
    return bool(getattr(config, "sliding_window", None)) and bool(getattr(config, "use_sliding_window", True))


def _alike(a: Tensor, b: Tensor) -> bool:
    """Equal up to what another order of summation does."""
    wide = b.float()
    return bool((a.float() - wide).abs().max() <= 64 * torch.finfo(b.dtype).eps * wide.abs().max().clamp(min=1.0))
