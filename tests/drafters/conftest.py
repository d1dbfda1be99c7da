"""One request through `decode_step` on a toy, with everything that happened kept for the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.protocols import Drafter, StepTrace
from forerun.core.seq import Seq
from forerun.engine.step import Parts, decode_step
from forerun.testing.scripted import ScriptedDrafter
from forerun.testing.toy import NextLaw, ToyTarget
from forerun.verify.match import Match


@dataclass
class Run:
    seqs: list[Seq]
    target: ToyTarget
    traces: list[StepTrace] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return self.seqs[0].token_ids

    @property
    def accepted(self) -> list[int]:
        return [trace.accepted[0] for trace in self.traces]

    @property
    def drafted(self) -> list[int]:
        return [trace.sizes[0] - 1 for trace in self.traces]


def run(
    law: NextLaw,
    drafter: Drafter,
    prompts: Sequence[Sequence[int]],
    plan: Plan,
    ask: SamplingParams | Sequence[SamplingParams],
    vocab_size: int = 64,
    max_len: int = 4096,
    after: Callable[[list[Seq]], None] = lambda live: None,
) -> Run:
    """Decode until all have ended; `after` is called after each step."""
    asks = [ask] * len(prompts) if isinstance(ask, SamplingParams) else list(ask)
    target = ToyTarget(law, vocab_size, max_len)
    seqs = [Seq(i, prompt, one, max_len) for i, (prompt, one) in enumerate(zip(prompts, asks, strict=True))]
    result = Run(seqs, target)
    for seq in seqs:
        target.begin(seq)
        drafter.begin(seq)
    while live := [seq for seq in seqs if not seq.finished]:
        for seq in live:
            assert target.reserve(seq, len(seq) - target.held(seq) + plan.nodes)
        result.traces.append(decode_step(live, plan, Parts(target, drafter, Match())))
        after(live)
        for seq in live:
            if seq.finished:
                target.release(seq)
                drafter.end(seq)
    return result


@pytest.fixture
def decode() -> Callable[..., Run]:
    return run


@pytest.fixture
def plain() -> Callable[..., list[list[int]]]:
    """The same requests without drafts: the tokens of each."""

    def tokens(*args: object, **kwargs: object) -> list[list[int]]:
        law, prompts, ask = args
        nobody = ScriptedDrafter(lambda seq: [])
        return [seq.token_ids for seq in run(law, nobody, prompts, Plan.none(), ask, **kwargs).seqs]

    return tokens
