"""Several models or formats, one loaded at a time: all of them in order, and then all again from the last to the first.

Arms are interleaved within a visit. Between visits lie minutes, so times of different subjects are not compared; what
is compared is each one's speed-up over its own plain decoding. How far a subject's two visits lie apart says how much
the machine changed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from forerun.assemble import Config
from forerun.lab.bench import PLAIN, Bench
from forerun.lab.paired import Samples, rounded

VISITS = 2


@dataclass(slots=True)
class Loader:
    """Opens benches by config and holds one at a time: models may be as large as the memory."""

    bench: Bench | None = None
    config: Config | None = None

    def open(self, config: Config) -> Bench:
        """The bench of `config`, which replaces the one before."""
        if self.bench is None or self.config != config:
            self.bench = None  # first: its memory is needed
            self.bench, self.config = Bench.open(config), config
        return self.bench


@dataclass(slots=True)
class Visits:
    """What was measured of one subject, visit by visit."""

    visits: list[Samples] = field(default_factory=list)

    @property
    def samples(self) -> Samples:
        """All of it: a later visit's rounds follow the earlier one's."""
        units, first = [], 0
        for found in self.visits:
            units += [replace(unit, round=unit.round + first) for unit in found.units]
            first = 1 + max((unit.round for unit in units), default=-1)
        return Samples(units, self.left_out)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Prompts that were too long for the context, as `measure` names them."""
        return tuple(dict.fromkeys(name for found in self.visits for name in found.left_out))

    def plain_ms(self, workload: str) -> list[float | None]:
        """Milliseconds a token of plain decoding at each visit."""
        times = [found.of(workload).pairs(PLAIN, PLAIN) for found in self.visits]
        return [rounded(median(ms for ms, _ in pairs)) if pairs else None for pairs in times]


def visit(loader: Loader, configs: Sequence[Config], measure: Callable[[Bench, int, str], Samples]) -> list[Visits]:
    """Measure every config, there and back. `measure(bench, number of the config, key)` is one visit; its key sets it
    apart from the others of a run."""
    found = [Visits() for _ in configs]
    for turn in range(VISITS):
        order = range(len(configs)) if turn % 2 == 0 else reversed(range(len(configs)))
        for number in order:
            bench = loader.open(configs[number])
            found[number].visits.append(measure(bench, number, f"visit {turn + 1} of {number}"))
    return found


def provenance(loader: Loader, config: Config, **facts: Any) -> dict[str, Any]:
    """Where a run of several subjects comes from: the machine, and `facts` in place of those of a single one."""
    return {**loader.open(config).provenance(), **facts}
