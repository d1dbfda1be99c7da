"""The vocabulary end in the compiled extension: the same distributions and draws as `core/vocabulary.py`, faster."""

from __future__ import annotations

import torch
from torch import Tensor

from forerun.core import noise, vocabulary
from forerun.core.errors import BrokenInvariant
from forerun.core.params import SamplingParams
from forerun.core.vocabulary import Support
from forerun.native import ext


class NativeVocabulary:
    """A `Vocabulary` for float32 on the CPU; everything else goes the plain way.

    SpecError where there is no extension.
    """

    def __init__(self) -> None:
        self._ext = ext.required()

    def shape(self, row: Tensor, params: SamplingParams) -> Support:
        if not _ours(row):
            return vocabulary.shape(row, params)
        try:
            ids, weights = self._ext.nucleus(
                row.contiguous().numpy(), params.temperature, params.top_k, params.top_p, params.min_p
            )
        except ValueError as error:
            raise _broken(error) from None
        return Support(None if ids is None else torch.from_numpy(ids), torch.from_numpy(weights))

    def likeliest(self, row: Tensor, count: int) -> tuple[list[int], list[float]]:
        if not _ours(row):
            return vocabulary.likeliest(row, count)
        try:
            found: tuple[list[int], list[float]] = self._ext.likeliest(row.contiguous().numpy()[None], count)[0]
            return found
        except ValueError as error:
            raise _broken(error) from None

    def race(self, weights: Tensor, key: int, ids: Tensor | None = None) -> int:
        if not _ours(weights):
            return noise.race(weights, key, ids)
        tokens = None if ids is None else ids.contiguous().numpy()
        first: int = self._ext.race(weights.contiguous().numpy(), tokens, key)
        if first < 0:
            raise BrokenInvariant("cannot draw: no token has a positive, finite weight here")
        return first


def _broken(error: ValueError) -> BrokenInvariant:
    return BrokenInvariant(
        f"no distribution can be made of a row's logits, {error}: the model or the runtime is broken"
    )


def _ours(values: Tensor) -> bool:
    return values.dtype == torch.float32 and values.device.type == "cpu"
