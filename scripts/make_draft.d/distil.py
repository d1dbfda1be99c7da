"""Training: AdamW on the target's own chances, with a tenth of each label on the token that was drawn; cosine."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from student import SoftLabels, hidden
from synthesis import Answer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaForCausalLM

_TOKENS = 1024  # of a batch, padding included
_WINDOW = 512  # answers that are sorted by length together
_DRAWN = 0.1
_WARM = 0.05  # share of the time until the learning rate is whole


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded ids [B, T]; the flat places of rows before answered tokens [N], and what the target thought there."""

    tokens: Tensor
    places: Tensor
    ids: Tensor
    chances: Tensor
    drawn: Tensor

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Batch:
        """One batch of these answers."""
        tokens = pad_sequence([torch.cat((a.prompt, a.answer[:-1])) for a in answers], batch_first=True)
        width = tokens.shape[1]
        places = [i * width + len(a.prompt) - 1 + torch.arange(len(a.answer)) for i, a in enumerate(answers)]
        return cls(
            tokens,
            torch.cat(places),
            torch.cat([a.ids for a in answers]).long(),
            torch.cat([a.chances for a in answers]).float(),
            torch.cat([a.answer for a in answers]),
        )

    def rows(self, model: LlamaForCausalLM) -> Tensor:
        """The model's states [N, E] where the answered tokens are guessed, bfloat16."""
        return hidden(model, self.tokens).flatten(0, 1)[self.places].bfloat16()

    def labels(self) -> tuple[Tensor, Tensor]:
        """Ids and chances [N, TOP + 1]: the target's likeliest tokens, and in the last column the one it drew."""
        chances = self.chances / self.chances.sum(-1, keepdim=True) * (1 - _DRAWN)
        last = torch.full((len(chances), 1), _DRAWN)
        return torch.cat((self.ids, self.drawn[:, None]), 1), torch.cat((chances, last), 1)


def batches(answers: Sequence[Answer], rng: random.Random) -> Iterator[Batch]:
    """All answers once, in batches of like length, in a random order."""
    order = rng.sample(list(answers), len(answers))
    for start in range(0, len(order), _WINDOW):
        window = sorted(order[start : start + _WINDOW], key=lambda a: len(a.prompt) + len(a.answer))
        groups: list[list[Answer]] = [[]]
        for answer in window:  # ascending, so the newest is the widest
            if (len(groups[-1]) + 1) * (len(answer.prompt) + len(answer.answer)) > _TOKENS and groups[-1]:
                groups.append([])
            groups[-1].append(answer)
        for group in rng.sample(groups, len(groups)):
            yield Batch.of(group)


def train(
    model: LlamaForCausalLM,
    answers: Sequence[Answer],
    rate: float,
    seed: int,
    progress: Callable[[int], float],
    told: Callable[[int, float], None],
) -> int:
    """Train until `progress(steps)` reaches 1; `told(step, loss)` hears of every step. Returns the steps."""
    rng = random.Random(seed)
    head = model.model.embed_tokens.weight.detach().bfloat16()
    trained = [p for p in model.parameters() if p.requires_grad]
    wide, narrow = [p for p in trained if p.ndim > 1], [p for p in trained if p.ndim == 1]
    groups = [{"params": wide, "weight_decay": 0.01}, {"params": narrow, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=True)
    steps, stream = 0, batches(answers, rng)
    while (done := progress(steps)) < 1:
        if (batch := next(stream, None)) is None:
            stream = batches(answers, rng)
            continue
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, (done + 1e-3) / _WARM, 0.5 * (1 + math.cos(math.pi * done)) + 0.01)
        loss = SoftLabels.apply(batch.rows(model), head, *batch.labels())  # type: ignore[no-untyped-call]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        steps += 1
        told(steps, float(loss.detach()))
    return steps


@dataclass(frozen=True, slots=True)
class Agreement:
    """Over answered tokens: how often both first choices are one, and the chance that a draw is accepted."""

    first: float
    greedy: float
    """`first`, on greedy answers alone."""
    overlap: float
    """Mean of sum(min(p, q)) over the target's likeliest tokens, at temperature 1."""
    tokens: int


@torch.inference_mode()
def agreement(model: LlamaForCausalLM, answers: Sequence[Answer]) -> Agreement:
    """How far the model is one with the target on these answers, fed the target's own tokens."""
    head = model.model.embed_tokens.weight.detach().bfloat16()
    counts = {True: [0, 0], False: [0, 0]}
    overlap = 0.0
    for at in range(0, len(answers), 4):
        for kind in (True, False):
            part = [a for a in answers[at : at + 4] if a.greedy is kind]
            if not part:
                continue
            batch = Batch.of(part)
            law = torch.softmax((batch.rows(model) @ head.T).float(), -1)
            counts[kind][0] += int((law.argmax(-1) == batch.ids[:, 0]).sum())
            counts[kind][1] += len(law)
            overlap += float(law.gather(1, batch.ids).minimum(batch.chances).sum())
    both = [sum(pair) for pair in zip(*counts.values(), strict=True)]
    return Agreement(both[0] / both[1], counts[True][0] / counts[True][1], overlap / both[1], both[1])
