"""Who attends to whom while a recurrent head is taught.

*Unrolled* (EAGLE-3's training-time test, 2503.01840): the head reads its own features step after step. At step j slot i
stands for position i + j; it sees the true slots up to i, whose keys are those of step 0, and of each later step the
slot of its own index.
"""

from __future__ import annotations

import torch
from torch import Tensor

from forerun.models.layer import rotated


class Unrolled:
    """Attention over B padded samples, one object a batch; call `step` before each step's forward.

    `cos`, `sin` [max_len, dim]; slots are [B, L] at step 0 and rows [B, M], at `places` [B, M], afterwards.
    """

    def __init__(self, cos: Tensor, sin: Tensor, lengths: Tensor, slots: int, places: Tensor) -> None:
        self._cos, self._sin = cos, sin
        self._places = places
        index = torch.arange(slots)
        self._first_mask = (index[None] <= index[:, None])[None] & (index[None, None] < lengths[:, None, None])
        self._row_mask = index[None, None] <= places[..., None]
        self._keys: dict[int, list[Tensor]] = {}
        self._values: dict[int, list[Tensor]] = {}
        self._step = 0

    def step(self, j: int) -> None:
        """From now on it is step j."""
        self._step = j

    def __call__(self, i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As `recurrent.Attend`."""
        positions = torch.arange(q.shape[1]) if self._step == 0 else self._places + self._step
        cos, sin = self._cos[positions][..., None, :], self._sin[positions][..., None, :]
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        scale = q.shape[-1] ** -0.5
        group = q.shape[2] // k.shape[2]
        q = q.transpose(1, 2) * scale  # [B, heads, M, dim]
        k, v = (x.transpose(1, 2).repeat_interleave(group, 1) for x in (k, v))
        if self._step == 0:
            self._keys[i], self._values[i] = [k], [v]
            weights = (q @ k.mT).masked_fill(~self._first_mask[:, None], float("-inf")).softmax(-1, torch.float32)
            return (weights.to(v.dtype) @ v).transpose(1, 2).flatten(2)
        keys, values = self._keys[i], self._values[i]
        keys.append(k)
        values.append(v)
        true = (q @ keys[0].mT).masked_fill(~self._row_mask[:, None], float("-inf"))
        own = torch.stack([(q * key).sum(-1) for key in keys[1:]], -1)
        weights = torch.cat([true, own], -1).softmax(-1, torch.float32).to(v.dtype)
        mixed = weights[..., : true.shape[-1]] @ values[0]
        for s, value in enumerate(values[1:]):
            mixed = mixed + weights[..., true.shape[-1] + s, None] * value
        return mixed.transpose(1, 2).flatten(2)
