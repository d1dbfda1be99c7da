"""Engines over toys for a test of distributions: how often does it cry wolf, and does it see a wolf?

A toy answers thousands of prompts a minute through the real engine, so the rate of false alarms can be counted. Three
contests: plain against plain, plain against lossless speculation, plain against a rule that keeps whatever is possible
(`typical` with nothing to exceed).
"""

from __future__ import annotations

from forerun.core.protocols import Drafter, Verifier
from forerun.drafters.model import ModelDrafter, ModelOptions
from forerun.engine.engine import Engine
from forerun.testing.engines import toy_engine
from forerun.testing.toy import ToyTarget, table_law
from forerun.verify.auto import Auto
from forerun.verify.typical import Typical

VOCAB, TOKENS = 6, 5
CONTESTS = ("plain", "speculative", "typical")


def toy(contest: str) -> Engine:
    """The engine of a contest's arm: one toy for all, and for those that draft another toy that draws."""
    law, other = table_law(VOCAB, 1), table_law(VOCAB, 2)
    verify: Verifier = Typical(0.0, 0.0) if contest == "typical" else Auto()
    drafter: Drafter | None = None
    if contest != "plain":
        drafter = ModelDrafter(ToyTarget(other, VOCAB), ModelOptions(law="sampled"))
    return toy_engine(law, drafter, depth=2, vocab_size=VOCAB, verify=verify, eos_ids=())


def answers(engine: Engine, seeds: list[int]) -> list[list[int]]:
    """An answer a seed, all at once."""
    requests = [engine.add([0, 1], temperature=1.0, max_tokens=TOKENS, seed=seed) for seed in seeds]
    while not all(map(engine.finished, requests)):
        engine.step()
    return [engine.collect(request).token_ids for request in requests]
