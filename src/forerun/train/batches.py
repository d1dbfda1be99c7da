"""Samples of a corpus as padded batches, in an order that a seed decides and a step can be found in again."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from forerun.train.corpus import Corpus, Place
from forerun.train.sample import Sample

_WINDOW = 512  # samples that are sorted by length together


@dataclass(frozen=True, slots=True)
class Batch:
    """B samples padded to L tokens: `tokens` int64 [B, L], `states` bfloat16 [B, L - 1, F] (0 where padded), `lengths`
    int64 [B], `answered` bool [B, L]."""

    tokens: Tensor
    states: Tensor
    lengths: Tensor
    answered: Tensor

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Batch:
        """One batch of these samples."""
        return cls(
            pad_sequence([s.tokens.long() for s in samples], batch_first=True),
            pad_sequence([s.states for s in samples], batch_first=True),
            torch.tensor([len(s.tokens) for s in samples]),
            pad_sequence([s.answered for s in samples], batch_first=True),
        )

    def to(self, device: torch.device) -> Batch:
        """The same on that device."""
        return Batch(*(getattr(self, item.name).to(device) for item in fields(self)))

    @property
    def learnt(self) -> int:
        """Answered tokens."""
        return int(self.answered.sum())

    def first_answered(self) -> int:
        """Where the earliest answer of any sample begins."""
        return int(self.answered.any(0).nonzero()[0])


def plan_epoch(places: Sequence[Place], seed: int, epoch: int, most: int) -> list[list[Place]]:
    """All places once, in batches of like length of at most `most` tokens, padding included, in a random order."""
    rng = random.Random(f"{seed}:{epoch}")
    order = rng.sample(list(places), len(places))
    groups: list[list[Place]] = []
    for start in range(0, len(order), _WINDOW):
        window = sorted(order[start : start + _WINDOW], key=lambda place: place.length)
        group: list[Place] = []
        for place in window:  # ascending, so the newest is the widest
            if group and (len(group) + 1) * place.length > most:
                groups.append(group)
                group = []
            group.append(place)
        groups.append(group)
    rng.shuffle(groups)
    return groups


def batches(
    corpus: Corpus, places: Sequence[Place], seed: int, most: int, start: int = 0
) -> Generator[Batch, None, None]:
    """Batches without end, epoch after epoch, from the `start`-th on; the next is read while one is used."""

    def groups() -> Iterator[list[Place]]:
        left, epoch = start, 0
        while True:
            planned = plan_epoch(places, seed, epoch, most)
            yield from planned[left:]
            left, epoch = max(0, left - len(planned)), epoch + 1

    def read(group: list[Place]) -> Batch:
        return Batch.of([corpus.load(place) for place in group])

    with ThreadPoolExecutor(1) as reader:
        coming = groups()
        next_batch = reader.submit(read, next(coming))
        while True:
            batch = next_batch.result()
            next_batch = reader.submit(read, next(coming))
            yield batch
