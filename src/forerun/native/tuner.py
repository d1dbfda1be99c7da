"""On how many threads a forward runs: on as many as measured fastest.

Threads in lockstep need all their cores at once. Where another process takes one, or two of them share one core, fewer
threads are faster, by a factor of ten beside two busy neighbours. Nothing in the system tells this reliably (quotas,
affinity, hyperthreads and neighbours come together), so it is measured: forwards of a kind are timed as they come, and
now and then a few of them run on one step more or fewer threads. The text does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from forerun.native import ext

if TYPE_CHECKING:
    from forerun.native.ext import KV, Program

LOOK = 4
"""Forwards of a look at another number of threads. One alone may be lucky between two stalls."""

MEAN = 32
"""Forwards of a mean: a lone stall is no neighbour."""

SHARE = 0.01
"""Of the time, what looks may cost."""

CLEARLY = 1.5
"""How much slower than another number of threads was a forward becomes where a core is taken; less is told by debt."""

STALLED = 1.2
"""Mean of forwards as a multiple of the fastest of them, from which on fewer threads are worth another look."""

SOON = 16
"""The share of a look's cost that is owed after a first failure is one in so many, and doubles with each further one:
what was a moment's stall is soon looked at again."""

FEW = 16
"""Rows up to which a forward takes nearly the same time; the time of more is told by the row."""


def steps(most: int) -> tuple[int, ...]:
    """Numbers of threads to choose from, fewest first: halves, and one less than all for a single busy neighbour."""
    counts = {most, max(1, most - 1)}
    while most > 1:
        most //= 2
        counts.add(most)
    return tuple(sorted(counts))


@dataclass(slots=True)
class _Kind:
    """What is known of forwards that are alike."""

    count: int
    """Threads that they run on."""
    cost: dict[int, float] = field(default_factory=dict)
    """Seconds by number of threads, the newest counting most."""
    seen: int = 0
    """Forwards since the number changed."""
    fastest: dict[int, float] = field(default_factory=dict)
    """Seconds of the fastest single forward by number of threads."""
    debt: float = 0.0
    """Seconds that looks have cost beyond their share."""
    failed: int = 0
    """Looks since the last that found something better."""
    look: int | None = None
    """Threads that are tried at this moment."""
    looked: list[float] = field(default_factory=list)
    settled: bool = False
    """Whether a look of its own was ever finished; until then it follows the other kinds."""
    turns: dict[int, int] = field(default_factory=dict)
    """Looks at each number of threads: those that had the fewest come first."""


class ThreadTuner:
    """Chooses the number of threads for one forward after another; call `choose`, run, then `tell` the seconds."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _Kind] = {}
        self._last: int | None = None
        self._now = _Kind(1)

    def choose(self, kind: Hashable, most: int) -> int:
        """Threads for the next forward, of that kind, where at most `most` are there."""
        now = self._kinds.get(kind)
        if now is None or max(now.count, now.look or 1) > most:
            now = self._kinds[kind] = _Kind(most)
        self._now = now
        follows = now.look is None and not now.settled and self._last is not None and self._last <= most
        if follows and now.count != self._last:
            now.count, now.seen = self._last or most, 0
        if now.look is None and now.seen >= LOOK:
            now.look, now.looked = self._due(now, steps(most)), []
            if now.look:
                now.turns[now.look] = now.turns.get(now.look, 0) + 1
        return now.look or now.count

    def _due(self, now: _Kind, counts: tuple[int, ...]) -> int | None:
        """A number of threads that is worth a look: one that was faster, or, when looks have cost little, the next.

        More threads may have become faster since. Fewer have not if they took twice as long, nor while forwards on
        these take as long as their fastest.
        """
        mean = now.cost[now.count]
        others = {count: now.cost.get(count, mean) for count in counts if count != now.count}
        if others and CLEARLY * min(others.values()) < mean:
            return min(others, key=lambda count: others[count])
        stalls = mean > STALLED * now.fastest[now.count]
        hopeful = [
            count for count, cost in others.items()
            if count > now.count or count not in now.turns or (stalls and cost <= 2 * mean)
        ]  # fmt: skip
        if now.debt > 0 or not hopeful:
            return None
        return min(hopeful, key=lambda count: (now.turns.get(count, 0), -count))

    def tell(self, seconds: float) -> None:
        """The time of the forward that was chosen for last; of one kind all in one unit."""
        now = self._now
        if now.look is None:
            mean = now.cost.get(now.count) if now.seen else None
            now.cost[now.count] = seconds if mean is None else mean + (seconds - mean) / min(now.seen + 1, MEAN)
            now.fastest[now.count] = min(seconds, now.fastest.get(now.count, seconds))
            now.debt = max(0.0, now.debt - SHARE * seconds)
            now.seen += 1
            return
        now.looked.append(seconds)
        spent, usual = sum(now.looked), now.cost[now.count]
        lost = spent >= LOOK * usual
        if not lost and len(now.looked) < LOOK:
            return
        now.cost[now.look] = spent / len(now.looked)
        now.settled = True
        if lost:
            now.debt += (spent - len(now.looked) * usual) * min(1.0, 2.0**now.failed / SOON)
            now.failed += 1
        else:
            now.fastest[now.look] = min(now.looked)
            now.count, now.seen, now.debt, now.failed, self._last = now.look, 1, 0.0, 0, now.look
        now.look = None


class Forwards:
    """Runs programs on as many threads as pay, and on all where their number was set."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._tuner, self._clock = ThreadTuner(), clock

    def run(self, program: Program, memory: KV, tokens: list[int], items: list[Any], features: Any = None) -> Any:
        """`program.run`, timed."""
        most = ext.threads()
        if most == 1 or ext.threads_set():
            return program.run(memory, tokens, items, features)
        threads = self._tuner.choose((id(program), len(tokens).bit_length()), most)
        begun = self._clock()
        found = program.run(memory, tokens, items, features, threads)
        self._tuner.tell((self._clock() - begun) / (len(tokens) if len(tokens) > FEW else 1))
        return found
