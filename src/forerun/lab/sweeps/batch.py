"""How many requests at once until speculation stops paying: a full batch leaves little of the machine to guess with.

The unit is a whole batch, from the moment when all of its answers have their first token until the last one ends. All
answers have the same length. A batch whose answers were guessed unequally well thins out at its end, where a server
would let new requests in; `filled` says how full it was on average, and it is part of the figure.

Every point answers the same prompts in the same drawn order, cut into batches of so many that share no prompt, so that
only the batch differs. A further round asks the same batches again: intervals come from different batches alone, for
two batches with prompts in common are no two observations.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from forerun.assemble import Config, choice_for, opened
from forerun.core.errors import CapacityError, SpecError
from forerun.core.options import Spec
from forerun.drafters.specs import split_plan
from forerun.engine.scheduler import HEADROOM
from forerun.lab.arms import Arm
from forerun.lab.bench import Bench
from forerun.lab.domains import data
from forerun.lab.paired import Asked, LogFor, Samples, opening, rounded
from forerun.lab.run import Answers, Run
from forerun.lab.sample import Sample
from forerun.lab.shapes import is_random
from forerun.lab.stats import FEWEST
from forerun.lab.sweeps.groups import Group, measure_groups
from forerun.lab.sweeps.points import run_points
from forerun.targets.paged import BLOCK_SIZE
from forerun.workloads.workload import Workload

MOST_PROMPT_TOKENS = 8192  # read in one step; more would need a lot of memory for what passes through the network


def engine_for(
    config: Config, sizes: Sequence[int], drafters: Sequence[str], workloads: Sequence[Workload], tokens: int
) -> dict[str, object]:
    """Fields of Config that the largest batch needs: room for all of it, and prompts read in one step.

    SpecError where there are fewer prompts than the largest batch takes, CapacityError if `config` asks for less room.
    """
    if is_random(config.model):
        raise SpecError(f"{config.model} has random weights and no tokenizer: texts mean nothing; take `lab curve`")
    prompts = [prompt for work in workloads for prompt in work.prompts]
    largest = max(sizes)
    if largest > len(prompts):
        raise SpecError(
            f"batches of {largest} take as many different prompts, got {len(prompts)}: give more (--prompts, "
            "--workload) or smaller batches (--batch)"
        )
    words = opened(config.model, choice_for(config)).words
    said = [opening(prompt) for prompt in prompts]
    lengths = sorted(
        len(words.chat(messages)) if words.has_template else len(words.encode(messages[0]["content"], bos=True))
        for messages in said
    )
    read = sum(lengths[-largest:])
    guessed = max((split_plan(Spec.parse(drafter))[0].most(tokens) for drafter in drafters), default=0)
    need = read + largest * (tokens + guessed + HEADROOM + 2 * BLOCK_SIZE)
    if config.kv_tokens is not None and config.kv_tokens < need:
        raise CapacityError(f"batches of {largest} need room for {need} tokens, kv_tokens is {config.kv_tokens}")
    longest = lengths[-1] + tokens + guessed + HEADROOM
    kv_tokens = config.kv_tokens or max(need, longest, config.max_len or 0)
    return {"kv_tokens": kv_tokens, "max_batch": largest, "chunk": min(max(512, read), MOST_PROMPT_TOKENS)}


def run_batch(
    bench: Bench,
    run: Run,
    sizes: Sequence[int],
    drafters: Sequence[str],
    workloads: Sequence[Workload],
    asked: Asked,
    log: LogFor | None = None,
) -> tuple[dict[str, Any], Samples]:
    """The figures and what they come from, at each batch size. SpecError if a prompt is too long for the context."""
    prompts = _prompts(bench, workloads, int(asked.params["max_tokens"]))
    name = workloads[0].name if len(workloads) == 1 else "mixed"

    def ask(size: int, key: str, arms: Sequence[Arm]) -> Samples:
        groups = batches(prompts, size, asked.rounds, asked.seed)
        return measure_groups(run, arms, groups, asked, key=key, workload=name, log=log)

    figures, samples = run_points(bench, run, "batch", sizes, drafters, ask)
    for found in figures["sets"][name]["points"]:
        here = Samples([unit for unit in samples.units if unit.point == found["value"]])
        found["batches"] = len({unit.prompt for unit in here.units})
        for arm, f in found["arms"].items():
            f["filled"] = rounded(filled(here.arm(arm)), 3)
    del figures["left_out"]  # a prompt that is too long is refused
    more = {"kv_tokens": bench.base.config.kv_tokens, "notes": [told(figures["sets"][name]["points"])]}
    return figures | more, samples


def told(points: Sequence[Mapping[str, Any]]) -> str:
    """How many different batches each size had, and what follows where they are few."""
    counts = ", ".join(f"{found['batches']} of {found['value']}" for found in points)
    few = [str(found["value"]) for found in points if found["batches"] < FEWEST]
    end = f"; below {FEWEST} there is no interval (batch {', '.join(few)}): more prompts make more" if few else ""
    return f"different batches, none with a prompt in common: {counts}{end}"


def _prompts(bench: Bench, workloads: Sequence[Workload], tokens: int) -> list[tuple[int, ...]]:
    """Token ids of every first turn, the workloads in turn."""
    found = []
    for work in workloads:
        for prompt in work.prompts:
            ids = tuple(bench.tokens(opening(prompt)))
            if len(ids) + tokens > bench.target.spec.max_len:
                raise SpecError(
                    f"{work.name}/{prompt.id} has {len(ids)} tokens: with an answer of {tokens} that is more than the "
                    f"context of {bench.target.spec.max_len}; ask for shorter answers, or leave it out"
                )
            found.append(ids)
    return found


def batches(prompts: Sequence[tuple[int, ...]], size: int, rounds: int, seed: int) -> list[Group]:
    """All prompts, drawn into batches of `size` that share none, and the same batches again in every round. What does
    not fill a batch is left out."""
    order = random.Random(f"{seed}/batches").sample(list(prompts), len(prompts))
    starts = range(0, len(order) - size + 1, size)
    return [
        Group(f"batch {start // size + 1}", tuple(order[start : start + size]), round, first=start)
        for round in range(rounds)
        for start in starts
    ]


def filled(samples: Sequence[Sample]) -> float:
    """How full a batch was on average while it ran: 1 if all of its answers ended together."""
    passes = sum(sample.passes for sample in samples)
    longest = sum(sample.answers * (sample.steps + 1) for sample in samples)  # and the step of the first tokens
    return min(1.0, passes / longest)


def answers(
    bench: Bench, sizes: Sequence[int], drafters: Sequence[str], works: Sequence[Workload], asked: Asked
) -> Answers:
    """The five answers of such a run."""
    return Answers(
        relative_to="plain decoding of the same batch through the same engine, batch by batch in turn",
        batch=", ".join(map(str, sizes)),
        stack=bench.stack,
        data=f"mixed in every batch: {data(works, asked)}",
        shape="; ".join(drafters) or "none",
    )
