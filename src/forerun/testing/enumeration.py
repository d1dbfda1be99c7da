"""Every outcome of several steps of the real loop, on toys: the law of the text is the target's, to rounding.

Drafter, target, verifier and the loop are those that serve; only chance is answered in every way in turn
(`testing/exact.py`). A real drafter runs another toy model, so that drafts are wrong often enough, and all steps share
one chance, so that a draw used twice would show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from forerun.core.draft import Law
from forerun.core.noise import Noise, Slot
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.protocols import Drafter, Verifier
from forerun.core.seq import Seq
from forerun.drafters.model import ModelDrafter, ModelOptions
from forerun.drafters.ngram import NgramDrafter, NgramOptions
from forerun.engine.step import Parts, decode_step
from forerun.testing.exact import Table, outcomes
from forerun.testing.gate import PlainDecoding
from forerun.testing.tables import random_table
from forerun.testing.toy import NextLaw, ToyTarget

LIMIT = 1e-12  # of a deviation that rounding explains
PLANS = {
    "token": Plan(1),
    "chain": Plan(2),
    "fork": Plan(1, nodes=2, width=2),
    "tree": Plan(2, nodes=4, width=2),
}
LAWS: tuple[Law, ...] = ("sampled", "distinct", "chosen", "foreseen")
ZEROS = {"dense": 0.0, "sparse": 0.35}
"""The part of the tokens that is impossible, for target and drafter apart: their supports differ."""
SHAPED: dict[str, dict[str, Any]] = {"pure": {"temperature": 1.0}, "shaped": {"temperature": 0.7, "top_k": 2}}
PROMPT = (0, 1, 0)
_LENGTH = 3
_ROOM = 16  # tokens of memory for a step, more than any tree here

Text = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One enumeration: `drafter` is model or ngram, `plan`, `table` and `params` are names of what stands above."""

    law: Law
    plan: str
    table: str = "sparse"
    params: str = "pure"
    drafter: str = "model"
    batch: int = 1
    vocab: int = 3

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.drafter}, {self.law} {self.plan}, {self.table} tables, {self.params}, batch {self.batch}"


@dataclass(frozen=True, slots=True)
class Found:
    """What an enumeration gave."""

    deviation: float
    """Largest difference between the probabilities of a text (of all texts of the batch) here and in plain decoding."""
    runs: int
    accepted: float
    """Expected number of drafted tokens that stood."""


def cases(verify: Verifier, *, quick: bool = False) -> Iterator[Case]:
    """Those that a verifier may judge; few if `quick`."""
    plans = [name for name, plan in PLANS.items() if plan.width == 1 or not verify.chains_only]
    for law in LAWS:
        if law not in verify.laws:
            continue
        for plan in plans:
            yield Case(law, plan)
            if not quick:
                yield Case(law, plan, table="dense")
                yield Case(law, plan, params="shaped")
        yield Case(law, "token" if quick else "chain", batch=2, vocab=2)
    if "chosen" in verify.laws:
        yield Case("chosen", "chain", table="dense", drafter="ngram")


def enumerate_case(verify: Verifier, case: Case) -> Found:
    """All that can happen with this verifier, with its probabilities, beside plain decoding's law."""
    zeros = ZEROS[case.table]
    target, other = random_table(case.vocab, 1, zeros=zeros), random_table(case.vocab, 2, zeros=zeros)
    params = SamplingParams(max_tokens=_LENGTH, **SHAPED[case.params])
    prompts = [(*PROMPT, b)[-3:] for b in range(case.batch)]
    runs = 0

    def decode(noise: Noise) -> tuple[tuple[Text, ...], int]:
        nonlocal runs
        runs += 1
        drafter = _drafter(case, other)
        seqs = [Seq(b, prompt, params, 1 << 10) for b, prompt in enumerate(prompts)]
        _decode(seqs, PLANS[case.plan], Parts(ToyTarget(_logits(target), case.vocab), drafter, verify), noise)
        return tuple(tuple(seq.token_ids) for seq in seqs), sum(seq.stats.accepted for seq in seqs)

    joint = outcomes(decode)
    ours: dict[tuple[Text, ...], float] = {}
    for (texts, _), chance in joint.items():
        ours[texts] = ours.get(texts, 0.0) + chance
    theirs = _independent([PlainDecoding(target, params, p).extended({(): 1.0}, _LENGTH) for p in prompts])
    deviation = max(abs(ours.get(texts, 0.0) - theirs.get(texts, 0.0)) for texts in {*ours, *theirs})
    return Found(deviation, runs, sum(chance * stood for (_, stood), chance in joint.items()))


def _decode(seqs: Sequence[Seq], plan: Plan, parts: Parts, noise: Noise) -> None:
    """Answer all in one batch, step by step, as the engine does."""
    for seq in seqs:
        parts.target.begin(seq)
        parts.drafter.begin(seq)
    while running := [seq for seq in seqs if not seq.finished]:
        for seq in running:
            parts.target.reserve(seq, len(seq) - parts.target.held(seq) + _ROOM)
        decode_step(running, plan, parts, noise=_Seated(noise, [seq.id for seq in running]))


def _drafter(case: Case, table: Table) -> Drafter:
    if case.drafter == "ngram":
        return NgramDrafter(NgramOptions(min=1))
    return ModelDrafter(ToyTarget(_logits(table), case.vocab), ModelOptions(law=case.law))


def _logits(table: Table) -> NextLaw:
    return lambda tokens: table(tuple(tokens)).log()


def _independent(laws: Sequence[dict[Text, float]]) -> dict[tuple[Text, ...], float]:
    """The joint law of texts that do not know of one another."""
    joint: dict[tuple[Text, ...], float] = {(): 1.0}
    for law in laws:
        joint = {(*texts, text): p * q for texts, p in joint.items() for text, q in law.items()}
    return joint


@dataclass(frozen=True, slots=True)
class _Seated:
    """A noise for the sequences that still run, each under the number it began with."""

    noise: Noise
    seats: Sequence[int] = field(default=())

    def accept(self, b: int, slot: Slot, chance: float) -> bool:
        return self.noise.accept(self.seats[b], slot, chance)

    def pick(self, b: int, slot: Slot, weights: Tensor, ids: Tensor | None = None) -> int:
        return self.noise.pick(self.seats[b], slot, weights, ids)

    def foresee(self, b: int, position: int, weights: Tensor, ids: Tensor | None = None) -> Tensor:
        return self.noise.foresee(self.seats[b], position, weights, ids)
