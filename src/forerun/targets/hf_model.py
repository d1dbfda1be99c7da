"""One transformers model: a forward over a cache, its size and its fingerprint."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from forerun.cache.view import Part, allowed
from forerun.targets.hf_cache import HfCache


class HfModel:
    """`model`, for one sequence at a time."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self.dtype: torch.dtype = model.dtype
        """What masks are made in."""
        known = inspect.signature(model.forward).parameters
        self._keeps_logits = "logits_to_keep" in known
        self._cache_name = "cache" if "cache" in known else "past_key_values"  # renamed in transformers 5

    @torch.inference_mode()
    def forward(
        self, tokens: Sequence[int], cache: HfCache, part: Part | None, rows: int, taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Feed tokens after the cache: logits of the last `rows` of them [rows, V], and of all the hidden states
        of the layers `taps`, side by side.

        `part` says who sees whom and at which position, None if it is a plain chain.
        """
        device, dtype = self.model.device, self.dtype
        options: dict[str, Any] = {self._cache_name: cache.cache, "use_cache": True, "return_dict": True}
        if self._keeps_logits:
            options["logits_to_keep"] = max(1, rows)
        if taps:
            options["output_hidden_states"] = True
        if part is not None:
            mask = torch.zeros(part.end - part.first, part.end, dtype=dtype)
            mask.masked_fill_(~allowed(part, None), torch.finfo(dtype).min)
            options["attention_mask"] = mask[None, None].to(device)
            options["position_ids"] = torch.tensor([part.positions()], device=device)
        out = self.model(input_ids=torch.tensor([tokens], device=device), **options)
        hidden = torch.cat([out.hidden_states[tap][0] for tap in taps], -1) if taps else None
        return out.logits[0, out.logits.shape[1] - rows :], hidden

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
