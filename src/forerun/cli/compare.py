"""The same prompts with speculation and without, in turn in one process: only such ratios mean anything.

A noisy machine is slow for both arms alike when they take turns, and the order is swapped at every prompt. A drafter
that remembers answers forgets them before each: it would know the other arm's by heart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from forerun.lab.looping import Repeats, counted, loops, repeats, told

if TYPE_CHECKING:
    from forerun.engine.engine import Engine
    from forerun.engine.results import Result


@dataclass(slots=True)
class Outcome:
    """Results of both arms, prompt by prompt."""

    plain: list[Result] = field(default_factory=list)
    drafted: list[Result] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether every answer is the same, token for token."""
        pairs = zip(self.plain, self.drafted, strict=True)
        return all([c.token_ids for c in a.choices] == [c.token_ids for c in b.choices] for a, b in pairs)

    def speedups(self) -> list[float]:
        """Plain time over speculative time after the first step of each prompt, where both took more than that."""
        return [speed for speed in self.by_prompt() if speed]

    def by_prompt(self) -> list[float | None]:
        """The same for every prompt, None where either took no more than a step."""
        times = [(decode_ms(a), decode_ms(b)) for a, b in zip(self.plain, self.drafted, strict=True)]
        return [plain / drafted if plain and drafted else None for plain, drafted in times]

    def whole(self) -> float | None:
        """Plain time over speculative time of all answers from asking to the end, prompt reading included."""
        plain, drafted = (sum(map(whole_s, arm)) for arm in (self.plain, self.drafted))
        return plain / drafted if plain and drafted else None

    def without_loops(self) -> list[float]:
        """The speed-ups of the prompts to which neither arm's answer repeats itself."""
        pairs = zip(self.by_prompt(), self.plain, self.drafted, strict=True)
        return [speed for speed, a, b in pairs if speed and not (loops([repeated(a)]) or loops([repeated(b)]))]

    def summary(self) -> dict[str, object]:
        """The figures as one object."""
        stats = [result.stats for result in self.drafted]
        passes = sum(s.target_passes for s in stats)
        speedups, rest = self.speedups(), self.without_loops()
        return {
            "identical": self.identical,
            "tokens": sum(len(result.tokens) for result in self.drafted),
            "plain_ms_per_token": median(map(decode_ms, self.plain)),
            "ms_per_token": median(map(decode_ms, self.drafted)),
            "speedup": median(speedups) if speedups else None,
            "speedup_answer": self.whole(),
            "looping": counted(list(map(repeated, self.drafted))),
            "speedup_without_looping": median(rest) if rest else None,
            "speedups": [round(value, 3) for value in speedups],
            "tau": sum(s.emitted for s in stats) / passes if passes else None,
            "target_passes": passes,
            "plain_target_passes": sum(result.stats.target_passes for result in self.plain),
            "phases": phases(self.drafted),
            "plain_phases": phases(self.plain),
        }


def compare(engine: Engine, prompts: Sequence[Sequence[int]], params: Mapping[str, Any]) -> Outcome:
    """Answer every prompt with the engine's own plan and with none, in turn, after a short warm-up of both."""
    from forerun.control.fixed import Fixed
    from forerun.core.plan import Plan
    from forerun.core.protocols import Remembers

    arms = (Fixed(Plan.none()), engine.controller)
    outcome = Outcome()
    try:
        for controller in arms:
            engine.controller = controller
            engine.generate(prompts[0], **{**params, "max_tokens": 4})
        for index, prompt in enumerate(prompts):
            for arm in (0, 1) if index % 2 else (1, 0):
                engine.controller = arms[arm]
                if isinstance(engine.parts.drafter, Remembers):
                    engine.parts.drafter.forget()
                (outcome.drafted if arm else outcome.plain).append(engine.generate(prompt, **params))
    finally:
        engine.controller = arms[1]
    return outcome


def decode_ms(result: Result) -> float:
    """Milliseconds per token after the first step of an answer; 0 if that was all."""
    return result.stats.decode_ms_per_token or 0.0


def whole_s(result: Result) -> float:
    """Seconds from the request to the end of its answer."""
    return result.stats.ended_s - result.stats.added_s


def repeated(result: Result) -> Repeats:
    """How far an answer repeats itself."""
    return repeats(result.token_ids)


def phases(results: Sequence[Result]) -> dict[str, float]:
    """Seconds by phase over all answers."""
    total: dict[str, float] = {}
    for result in results:
        for phase, seconds in result.stats.seconds.items():
            total[phase] = round(total.get(phase, 0.0) + seconds, 4)
    return total


def table(outcome: Outcome) -> str:
    """The figures for people."""
    s = outcome.summary()
    drafted, plain = phases(outcome.drafted), phases(outcome.plain)
    lines = [
        f"{'':24}{'plain':>12}{'speculative':>14}",
        f"{'ms per token (median)':24}{s['plain_ms_per_token']:12.1f}{s['ms_per_token']:14.1f}",
        f"{'target passes':24}{s['plain_target_passes']:12}{s['target_passes']:14}",
        f"{'tokens per pass (tau)':24}{1.0:12.2f}{s['tau'] or 0.0:14.2f}",
        *(f"{f'seconds in {name}':24}{plain.get(name, 0.0):12.2f}{seconds:14.2f}" for name, seconds in drafted.items()),
        f"{'speed-up (median)':24}{'':12}{s['speedup'] or 0.0:13.2f}x",
        f"{'whole answers':24}{'':12}{outcome.whole() or 0.0:13.2f}x",
        *_looping(outcome),
        f"{'same text':24}{'':12}{'yes' if outcome.identical else 'NO':>14}",
    ]
    return "\n".join(lines)


def _looping(outcome: Outcome) -> list[str]:
    """Two lines where answers repeat themselves: how many do, and what is gained without them."""
    found = counted(list(map(repeated, outcome.drafted)))
    if not found["answers"]:
        return []
    rest = outcome.without_loops()
    without = f"{median(rest):13.2f}x" if rest else f"{'none left':>14}"
    return [f"{'answers that loop':24}{'':12}{told(found):>14}", f"{'speed-up without them':24}{'':12}{without}"]
