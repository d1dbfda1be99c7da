"""How good was the advice? What was advised, held against every candidate measured live on the same prompts.

The best of many arms is partly the luckiest: told on the prompts that it was chosen on it looks better than it is. So
it is chosen on every second prompt and told on the others, and the advised arm is told on those too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.core.errors import SpecError
from forerun.lab.bench import PLAIN
from forerun.lab.paired import Samples, Unit, rounded
from forerun.lab.restored import restored
from forerun.lab.sample import Sample
from forerun.lab.stats import Interval, total_ratio

_FACTS = ("workload", "prompt", "turn", "round", "arm")


def reloaded(rows: Sequence[Mapping[str, Any]]) -> Samples:
    """The samples that a results file holds, as `Samples.to_json` wrote them."""
    found: dict[tuple[str, str, int, int], dict[str, Sample]] = {}
    for row in rows:
        workload, prompt, turn, round, arm = (row[name] for name in _FACTS)
        sample = restored(Sample, {key: value for key, value in row.items() if key not in _FACTS})
        found.setdefault((workload, prompt, turn, round), {})[arm] = sample
    return Samples([Unit(*facts, samples) for facts, samples in found.items()])


def against(samples: Samples, advised: str, specs: Sequence[str]) -> dict[str, Any]:
    """One workload's figures: the total speed-up of the advised spec (`none` is plain decoding), and what was lost by
    not taking the best of `specs` or none at all. SpecError for fewer than two prompts that can be timed.

    `loss` is 1 - advised / best, on prompts that the best was not chosen on and that both arms took more than one step
    for: below 0 where the advised arm is the faster one there, null where there are none.
    """
    prompts = list(dict.fromkeys(unit.prompt for unit in samples.units))
    chosen_on, told_on = (_only(samples, prompts[first::2]) for first in (0, 1))
    chosen = {spec: _total(chosen_on, spec) for spec in ("none", *specs)}
    values = {spec: total.value for spec, total in chosen.items() if total and _total(told_on, spec)}
    if not values:
        raise SpecError("the best is chosen on prompts and told on others: give more of them, or --tokens more")
    best = max(values, key=lambda spec: values[spec])
    both = _only(told_on, [p for p in prompts if all(_total(_only(told_on, [p]), spec) for spec in (advised, best))])
    whole, ours, theirs = _total(samples, advised), _total(both, advised), _total(both, best)
    return {
        "prompts": len(prompts),
        "told_on": len(both.pairs(PLAIN, PLAIN)),
        "advised": advised,
        "advised_total": whole.to_json() if whole else None,
        "best": best,
        "best_chosen_total": rounded(values[best]),
        "best_told_total": theirs.to_json() if theirs else None,
        "advised_told_total": ours.to_json() if ours else None,
        "loss": rounded(1.0 - ours.value / theirs.value) if ours and theirs else None,
    }


def grid_specs(advice: Mapping[str, Any]) -> list[str]:
    """Every candidate that a run of `lab advise` looked at, or had no time for, over all of its workloads."""
    found: dict[str, None] = {}
    for work in advice["workloads"].values():
        found |= dict.fromkeys([entry["spec"] for entry in work["candidates"]] + work["untried"])
        found |= dict.fromkeys(name for name in work["arms"] if name != PLAIN)
    return list(found)


def _only(samples: Samples, prompts: Sequence[str]) -> Samples:
    return Samples([unit for unit in samples.units if unit.prompt in prompts])


def _total(samples: Samples, spec: str) -> Interval | None:
    """The total speed-up of a spec; None where no answer of it could be timed."""
    pairs = samples.pairs(PLAIN, PLAIN if spec == "none" else spec)
    return total_ratio(pairs) if pairs else None
