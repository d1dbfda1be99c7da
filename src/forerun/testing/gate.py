"""The losslessness gate: the exact law of what a verifier emits, beside the law of plain decoding.

A step emits a few tokens; continued by the target they must be distributed as the target alone would write. The gate
measures the largest deviation over all texts, and how many drafted tokens stand on average. A right verifier deviates
by rounding only (1e-16 or so); the wrong pairings known from the field deviate by 0.05 and more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from forerun.core.draft import Draft, Tree
from forerun.core.noise import Noise
from forerun.core.params import SamplingParams
from forerun.core.protocols import Verifier
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.testing.exact import Table, outcomes

Text = tuple[int, ...]

SAMPLED = SamplingParams(temperature=1.0)
PROMPT: Text = (0,)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the gate found."""

    deviation: float
    """Largest difference between the emitted law, continued, and the target's own."""
    accepted: float
    """Expected number of drafted tokens that stand."""
    emitted: Mapping[Text, float]
    """The law of the tokens of one step."""
    first: tuple[float, ...]
    """The law of the first of them."""


def measure(
    verify: Verifier,
    target: Table,
    drafted: Callable[[Noise], Tree],
    params: SamplingParams = SAMPLED,
    prompt: Text = PROMPT,
) -> Measured:
    """Enumerate one step of `verify` on the trees that `drafted` can draw.

    `target` gives probabilities [V] by all tokens so far, prompt included; `params` shape them as in serving.
    """
    scored: dict[tuple[Text, Text], Rows] = {}

    def step(noise: Noise) -> tuple[Text, int]:
        tree = drafted(noise)
        key = (tree.tokens, tree.parents)
        if key not in scored:
            scored[key] = score([tree], target, [params], [prompt])
        verdict = verify(Draft((tree,)), scored[key], noise)
        return tuple(verdict.emitted(Draft((tree,)))[0]), verdict.accepted[0]

    joint = outcomes(step)
    emitted: dict[Text, float] = {}
    for (text, _), chance in joint.items():
        emitted[text] = emitted.get(text, 0.0) + chance
    plain = PlainDecoding(target, params, prompt)
    length = max(map(len, emitted))
    ours, theirs = plain.extended(emitted, length), plain.extended({(): 1.0}, length)
    return Measured(
        deviation=max(abs(ours.get(text, 0.0) - theirs.get(text, 0.0)) for text in {*ours, *theirs}),
        accepted=sum(chance * accepted for (_, accepted), chance in joint.items()),
        emitted=emitted,
        first=tuple(
            sum(chance for text, chance in emitted.items() if text[0] == token) for token in range(len(plain.row(())))
        ),
    )


class PlainDecoding:
    """The target's own law after `prompt`, one token at a time and with no draft in sight."""

    def __init__(self, target: Table, params: SamplingParams = SAMPLED, prompt: Text = PROMPT) -> None:
        self._target = target
        self._params = params
        self._prompt = prompt
        self._rows: dict[Text, list[float]] = {}

    def row(self, text: Text) -> list[float]:
        """Probabilities [V] of the token after `text`."""
        if text not in self._rows:
            tokens = (*self._prompt, *text)
            rows = score([Tree.root(tokens[-1])], self._target, [self._params], [tokens])
            self._rows[text] = rows.probs(0, 0).tolist()
        return self._rows[text]

    def extended(self, law: Mapping[Text, float], length: int) -> dict[Text, float]:
        """The law of texts, each continued to `length` tokens."""
        full: dict[Text, float] = {}
        pending = list(law.items())
        while pending:
            text, chance = pending.pop()
            if len(text) == length:
                full[text] = full.get(text, 0.0) + chance
            else:
                pending += [((*text, token), chance * p) for token, p in enumerate(self.row(text)) if p]
        return full


def score(
    trees: Sequence[Tree], target: Table, params: Sequence[SamplingParams], prompts: Sequence[Sequence[int]]
) -> Rows:
    """The rows [R, V] (float64) that a target with this table returns for a batch of trees, one under each prompt."""
    items: list[Item] = []
    logits: list[Tensor] = []
    for index, (tree, ask, prompt) in enumerate(zip(trees, params, prompts, strict=True)):
        last = len(prompt) - 1
        items.append(Item(Seq(index, prompt, ask, max_len=1 << 20), last, last, tree))
        for node in range(len(tree)):
            path = [tree.tokens[n] for n in tree.path(node)]
            logits.append(target((*prompt, *path)).double().log())
    return Rows(items, torch.stack(logits), logits[0].shape[0])
