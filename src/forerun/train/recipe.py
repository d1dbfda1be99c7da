"""What may be chosen of a head's making, and what is trained: parameters, a lesson, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any, Literal

import torch
from torch import Tensor

from forerun.models.heads.config import Kind
from forerun.models.heads.head import Head
from forerun.train.batches import Batch
from forerun.train.made import Made
from forerun.train.trainer import Lesson, Told

Taught = Kind | Literal["medusa2", "draft"]
TAUGHT: tuple[Taught, ...] = ("eagle", "eagle3", "p-eagle", "medusa", "medusa2", "mtp", "draft")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What may be chosen of a head's making. None is the kind's own default."""

    kind: Taught
    draft_vocab: int | Literal["auto"] | None = "auto"
    """Words that it can guess; None is all, auto 16384 where the target has more."""
    own_end: bool | None = None
    """Whether the vocabulary's end is learnt too (else it is the target's)."""
    keep_end: bool = False
    """Whether the end of the head that it begins from stays as it is, bit for bit: shorter steps, and of the folder
    only the rest differs."""
    layers: int | None = None
    """Decoder layers: 1 of heads, 4 of draft models."""
    steps: int | None = None
    """Unrolled steps, Medusa heads, or P-EAGLE's depths."""
    decay: float | None = None
    loss: str = "kl"
    seed: int = 0
    begun: Head | None = None
    """What has learnt already: the start, as far as its tensors have a place in this kind."""


@dataclass(frozen=True, slots=True)
class Pupil:
    """What is to be trained: parameters float32 by name, what teaches them, and what is made of them in the end."""

    weights: dict[str, Tensor]
    lesson: Lesson
    finish: Callable[[Mapping[str, Tensor]], Made]
    gentle: Mapping[str, float] = field(default_factory=dict)
    """Tensors that know something already: AdamW steps at this share of the rate; at 0 they stay as they are."""
    late: float = 0.0
    """Share of the course during which those only come up to that rate."""
    mark: str = ""
    """Of what parameters mean beside their shapes: the words of their rows, the scale of their columns."""

    def on(self, device: torch.device) -> Pupil:
        """The same, taught on that device."""
        if device.type == "cpu":
            return self
        lesson, finish = moved(self.lesson, device), self.finish

        def taught(w: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Told]:
            with device:  # what a lesson makes for itself is made there
                return lesson(w, batch.to(device))

        return replace(
            self,
            weights={name: value.to(device) for name, value in self.weights.items()},
            lesson=taught,
            finish=lambda w: finish({name: value.cpu() for name, value in w.items()}),
        )


def moved(lesson: Any, device: torch.device) -> Lesson:
    """A lesson whose tensors, and what else of it can be moved, are on that device."""
    held = {item.name: getattr(lesson, item.name) for item in fields(lesson)}
    found: Lesson = replace(lesson, **{name: value.to(device) for name, value in held.items() if hasattr(value, "to")})
    return found


def mark_of(*tensors: Tensor | None) -> str:
    """A digest of tensors."""
    digest = sha256()
    for tensor in tensors:
        digest.update(b"none" if tensor is None else tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def detached(w: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that no gradient goes into."""
    return {name: value.detach().clone() for name, value in w.items()}
