"""Which figures there are, who takes turns for them, and the arithmetic of the ratios."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from forerun.lab.sample import parts_at

Times = dict[tuple[str, str], float]
"""One round's milliseconds by (task, worker)."""
Record = Mapping[str, Any]
"""What a worker said to a task in a round: round, task, worker, ms, and what else there was."""
BESIDE = {"loop_ms": "loop", "one_row_ms": "one_row"}
"""Further times that a reply may hold, and what they are called behind worker and task."""


@dataclass(frozen=True)
class Figure:
    """A ratio: the peer's time over ours, at one task."""

    name: str
    task: str
    peer: str
    ours: str


FIGURES = (
    Figure("llama.cpp/bf16", "decode", "llama.cpp/bf16", "ours/bf16"),
    Figure("llama.cpp/int8", "decode", "llama.cpp/int8", "ours/int8"),
    Figure("llama.cpp/q4", "decode", "llama.cpp/q4", "ours/q4"),
    Figure("llama.cpp/q4/rows8", "rows8", "llama.cpp/q4", "ours/q4"),
    Figure("llama.cpp/bf16/prefill512", "prefill512", "llama.cpp/bf16", "ours/bf16"),
    Figure("transformers/bf16", "decode", "transformers/bf16", "ours/bf16"),
)


def workers(figures: Iterable[Figure]) -> list[str]:
    """Everyone who takes part, each once."""
    return list(dict.fromkeys(name for figure in figures for name in (figure.ours, figure.peer)))


def turns(figures: Sequence[Figure], turn: int) -> list[tuple[str, str]]:
    """One round's (task, worker), those of one comparison next to each other; who begins moves on by one each round."""
    groups: dict[tuple[str, str], list[str]] = {}
    for figure in figures:
        group = groups.setdefault((figure.task, figure.ours), [figure.ours])
        group.append(figure.peer)
    order = []
    for (task, _), group in groups.items():
        first = turn % len(group)
        order += [(task, worker) for worker in group[first:] + group[:first]]
    return order


def report(figures: Sequence[Figure], records: Sequence[Record], words: Callable[[Any], str]) -> dict[str, Any]:
    """Ratios with their spread, times, and how far the answers are the same text; `words` turns ids into text."""
    rounds: dict[int, Times] = {}
    for record in records:
        rounds.setdefault(record["round"], {})[record["task"], record["worker"]] = record["ms"]
    times = list(rounds.values())
    spread = {name: summary(values) for name, values in ratios(figures, times).items()}
    texts = {record["worker"]: words(record["tokens"]) for record in records if record["task"] == "decode"}
    milliseconds = {f"{worker} {task}": [here[task, worker] for here in times] for task, worker in times[0]}
    for record in records:
        for key, name in BESIDE.items():
            if key in record:
                milliseconds.setdefault(f"{record['worker']} {record['task']} {name}", []).append(record[key])
    return {
        "ratios": {name: entry["median"] for name, entry in spread.items()},
        "spread": spread,
        "ms": {name: summary(values) for name, values in milliseconds.items()},
        "same_text": {f.name: agreement(texts[f.ours], texts[f.peer]) for f in figures if f.task == "decode"},
    }


def ratios(figures: Iterable[Figure], rounds: Sequence[Times]) -> dict[str, list[float]]:
    """The peer's time over ours, round by round."""
    return {
        figure.name: [times[figure.task, figure.peer] / times[figure.task, figure.ours] for times in rounds]
        for figure in figures
    }


def summary(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    """Median, lowest and highest."""
    return {
        "median": round(median(values), digits),
        "lowest": round(min(values), digits),
        "highest": round(max(values), digits),
    }


def agreement(first: str, second: str) -> float:
    """Share of the longer answer that both begin with: 1 if they are the same."""
    common = parts_at(first, second)
    return 1.0 if common is None else round(common / max(len(first), len(second)), 3)
