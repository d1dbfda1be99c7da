"""What a lookup costs on long prompts: `python -m forerun.testing.lookup_cost` prints microseconds per draft.

Times belong to a machine and its mood, so tests count work instead; this is for eyes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from time import perf_counter

from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.protocols import Drafter
from forerun.core.seq import Seq, Token
from forerun.drafters.ngram import NgramDrafter
from forerun.drafters.suffix import SuffixDrafter


def seconds_per_draft(make: Callable[[], Drafter], length: int, plan: Plan, steps: int = 300) -> float:
    """Mean time of a draft on a prompt of `length` tokens that keeps repeating phrases, two tokens a step."""
    rng = random.Random(0)
    phrases = [[rng.randrange(5000) for _ in range(rng.randrange(2, 20))] for _ in range(100)]
    text: list[int] = []
    while len(text) < length + 2 * steps:
        text += rng.choice(phrases)
    drafter, seq, noise = make(), Seq(0, text[:length], SamplingParams(), 1 << 30), SeededNoise([0])
    drafter.begin(seq)
    spent = 0.0
    for step in range(steps):
        start = perf_counter()
        drafter.draft([seq], plan, noise)
        spent += perf_counter() - start
        seq.extend(Token(token) for token in text[length + 2 * step : length + 2 * step + 2])
    return spent / steps


def main() -> None:
    """Print one line for each drafter and prompt length."""
    for make, plan in ((NgramDrafter, Plan(8)), (SuffixDrafter, Plan(8)), (SuffixDrafter, Plan(8, nodes=32, width=4))):
        for length in (1_000, 10_000, 30_000, 100_000):
            micros = seconds_per_draft(make, length, plan) * 1e6
            print(f"{make.name} width {plan.width}: {length} tokens, {micros:.0f} microseconds a draft")


if __name__ == "__main__":
    main()
