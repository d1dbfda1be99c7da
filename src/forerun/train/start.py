"""What a head is before it has learnt anything.

The vocabulary's end is the target's, since it knows the words; all else is random. The target's own layers are no
start: their matrices are five times as large as a random start's and their norms as much smaller, so steps of one size
for all move the ones too little and the others too much. The last norm begins low: who knows nothing is better unsure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from forerun.core.errors import SpecError
from forerun.models.heads.config import MedusaConfig, RecurrentConfig
from forerun.models.heads.head import Head
from forerun.train.ends import Ends

_SPREAD = 0.6  # of what keeps variances
_QUIET = 0.3  # of that, for what is added to the stream
_UNSURE = 0.4  # of the last norm


def recurrent_start(
    c: RecurrentConfig, ends: Ends, words: Tensor | None, seed: int, own_end: bool
) -> dict[str, Tensor]:
    """Parameters of a recurrent head, float32, by name."""
    draw = torch.Generator().manual_seed(seed)
    found: dict[str, Tensor] = {}
    for name, shape in c.shapes().items():
        if len(shape) == 1:
            found[name] = torch.ones(shape) if "norm" in name else torch.zeros(shape)
            continue
        spread = _SPREAD * (_QUIET if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0)
        found[name] = torch.randn(shape, generator=draw) * spread * shape[1] ** -0.5
    if c.normed:
        found["norm.weight"] *= _UNSURE
        if own_end:
            found["lm_head.weight"] = ends.rows(words).float().clone()
    return found


def medusa_start(c: MedusaConfig, ends: Ends, words: Tensor | None, own_end: bool) -> dict[str, Tensor]:
    """Parameters of Medusa heads: blocks of zeros, so that each begins as the target's own end."""
    found = {name: torch.zeros(shape) for name, shape in c.shapes().items()}
    if own_end:
        found |= {name: ends.rows(words).float().clone() for name in c.ends}
    return found


def carried(
    start: Mapping[str, Tensor], begun: Head, value_of: Callable[[str], Tensor], words: Tensor | None
) -> dict[str, Tensor]:
    """Those of the tensors of `start` that `begun` has in the same shape, with its values (`value_of` a name).

    Of a vocabulary's end [words, H] the rows go over whose words both know. SpecError where nothing fits.
    """
    found: dict[str, Tensor] = {}
    ends = {*begun.config.ends}
    for name in begun.tensors.keys() & start.keys():
        theirs_shape, ours_shape = begun.tensors[name].shape, start[name].shape
        if theirs_shape[1:] != ours_shape[1:] or (name not in ends and theirs_shape != ours_shape):
            continue
        value = value_of(name)
        if name in ends:
            rows = torch.zeros(begun.config.vocab_size, value.shape[1])
            known = torch.zeros(begun.config.vocab_size, dtype=torch.bool)
            theirs = torch.arange(len(value)) if begun.words is None else begun.words
            rows[theirs], known[theirs] = value, True
            ours = torch.arange(len(start[name])) if words is None else words
            found[name] = torch.where(known[ours, None], rows[ours], start[name])
        else:
            found[name] = value
    if not found:
        raise SpecError(f"nothing of the {begun.kind} head that it was to begin from has a place in this one")
    return found
