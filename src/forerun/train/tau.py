"""What a head is worth: tokens per target pass on prompts that it was not trained on, measured by serving them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from forerun.assemble import Foundation, choice_for
from forerun.targets.threads import torch_threads
from forerun.train.corpus import Corpus, Place
from forerun.train.made import Made

_ALL_ROWS = f"rows={1 << 20}"  # all prompts draft whole trees side by side: what counts is tokens, not time


@dataclass(frozen=True, slots=True)
class Tau:
    """Tokens per target pass, bonus included: of all prompts together, and by domain."""

    all: float
    by_domain: dict[str, float]
    prompts: int


@dataclass(frozen=True, slots=True)
class Measurer:
    """Serves held-out `prompts`, (domain, text) each, greedily, `tokens` tokens of each answer."""

    base: Foundation
    prompts: Sequence[tuple[str, str]]
    tokens: int = 64
    plan: str = ""
    """Options of the drafter, as depth=5,nodes=15."""

    @property
    def native(self) -> bool:
        """Whether the compiled runtime serves, which wants torch's threads out of its way."""
        return choice_for(self.base.config).runtime == "native"

    def __call__(self, made: Made) -> Tau:
        """The tau of `made` with its drafter's own plan, or this one's."""
        emitted: dict[str, int] = defaultdict(int)
        passes: dict[str, int] = defaultdict(int)
        with (
            torch_threads(1 if self.native else None),
            made.serving(self.base, ",".join(filter(None, (self.plan, _ALL_ROWS)))) as engine,
        ):  # as a served model has it
            asked = [engine.chat(text) if engine.has_template else text for _, text in self.prompts]
            results = engine.generate_batch(asked, max_tokens=self.tokens, temperature=0.0)
        for (domain, _), result in zip(self.prompts, results, strict=True):
            stats = result.choices[0].stats
            emitted[domain] += stats.emitted
            passes[domain] += stats.target_passes
        taus = {domain: emitted[domain] / max(1, passes[domain]) for domain in emitted}
        return Tau(sum(emitted.values()) / max(1, sum(passes.values())), taus, len(self.prompts))


def held_out(corpus: Corpus, each: int) -> list[tuple[str, str]]:
    """Up to `each` held-out prompts of every domain."""
    found: dict[str, list[Place]] = defaultdict(list)
    for place in corpus:
        if place.held_out and len(found[place.domain]) < each:
            found[place.domain].append(place)
    return [(domain, place.prompt) for domain, places in sorted(found.items()) for place in places]
