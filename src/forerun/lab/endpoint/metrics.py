"""What a server counts of speculation on its Prometheus page, by the names of four servers.

Only differences of counters over a run are used. A counter that went down, or another start time of the process, is a
restart, after which the difference means nothing. Gauges of acceptance (SGLang's, TensorRT-LLM's) are a snapshot of
whatever ran last, so they are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Labels = frozenset[tuple[str, str]]
Scrape = Mapping[str, Mapping[Labels, float]]
"""Values by metric, then by labels."""

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*", re.ASCII)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:\\.|[^"\\])*)"', re.ASCII)
_ESCAPES = {r"\"": '"', r"\\": "\\", r"\n": "\n"}
_START = "process_start_time_seconds"


@dataclass(frozen=True, slots=True)
class Names:
    """What a server calls its numbers; several spellings of one stand apart, and counters may end in `_total`.

    Where a server counts verifying passes and the tokens that it made, it counts no drafts.
    """

    server: str
    prefix: str
    running: str
    """Gauges of requests that run or wait."""
    counters: Mapping[str, str]

    def of(self, counter: str, scrape: Scrape) -> str | None:
        """What a counter is called on this page; None where it has none."""
        spelled = [self.prefix + name for name in self.counters.get(counter, "").split()]
        return next((full for name in spelled for full in (f"{name}_total", name) if full in scrape), None)

    def speculation(self, scrape: Scrape) -> list[str]:
        """The counters of speculation that a page has."""
        return [full for counter in _SPECULATION if (full := self.of(counter, scrape))]


_SPECULATION = ("drafts", "drafted", "accepted", "accepted_at", "passes")
_OF_DRAFTS = {
    "drafts": "spec_decode_num_drafts",
    "drafted": "spec_decode_num_draft_tokens",
    "accepted": "spec_decode_num_accepted_tokens",
    "accepted_at": "spec_decode_num_accepted_tokens_per_pos",
}
_OF_PASSES = {"passes": "spec_verify_calls", "generated": "generation_tokens"}
_OF_TOKENS = {
    "drafted": "spec_decode_num_draft_tokens spec_decode_drafted_tokens",
    "accepted": "spec_decode_num_accepted_tokens spec_decode_accepted_tokens",
}
KNOWN = (
    Names("vllm", "vllm:", "num_requests_running num_requests_waiting", _OF_DRAFTS),
    Names("llama.cpp", "llamacpp:", "requests_processing requests_deferred", _OF_DRAFTS),
    Names("sglang", "sglang:", "num_running_reqs num_queue_reqs", _OF_PASSES),
    Names("tensorrt-llm", "trtllm_", "num_requests_running num_requests_waiting", _OF_TOKENS),
)


@dataclass(frozen=True, slots=True)
class Counts:
    """Differences over a run; None where the server does not count it."""

    source: str
    drafts: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    accepted_at: tuple[int, ...] = ()
    passes: int | None = None
    generated: int | None = None
    restarted: bool = False
    """The server's counters began anew meanwhile: nothing else is said."""


def parse(text: str) -> Scrape:
    """A page in Prometheus' text format; lines that are none, and values that are not finite, are left out."""
    found: dict[str, dict[Labels, float]] = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line)
        if match:
            try:
                value = float(match[3])
            except ValueError:
                continue
            if math.isfinite(value):
                found.setdefault(match[1], {})[frozenset(_labels(match[2] or ""))] = value
    return found


def _labels(text: str) -> Iterator[tuple[str, str]]:
    for name, value in _LABEL.findall(text):
        yield name, re.sub(r'\\["\\n]', lambda escape: _ESCAPES[escape[0]], value)


def names_of(scrape: Scrape) -> Names | None:
    """Whose page this is; None if nobody's that we know."""
    return next((names for names in KNOWN if any(name.startswith(names.prefix) for name in scrape)), None)


def busy(scrape: Scrape) -> float | None:
    """Requests that run or wait; None where the page does not say."""
    names = names_of(scrape)
    gauges = [names.prefix + name for name in names.running.split()] if names else []
    told = [scrape[gauge] for gauge in gauges if gauge in scrape]
    return sum(sum(series.values()) for series in told) if told else None


def difference(before: Scrape, after: Scrape, model: str) -> Counts | None:
    """Speculation between two readings; of `model` alone where the page tells models apart; None without counters."""
    names = names_of(after)
    if names is None or silence(after, model):
        return None
    if _restarted(before, after, names.speculation(after)):
        return Counts(names.server, restarted=True)

    def grown(counter: str) -> int | None:
        full = names.of(counter, after)
        return None if full is None else round(sum(_grown(before, after, full, model).values()))

    at = names.of("accepted_at", after)
    return Counts(
        names.server,
        drafts=grown("drafts"),
        drafted=grown("drafted"),
        accepted=grown("accepted"),
        accepted_at=_positions(_grown(before, after, at, model)) if at else (),
        passes=grown("passes"),
        generated=grown("generated"),
    )


def silence(scrape: Scrape | None, model: str) -> str:
    """Why a page says nothing of the speculation of `model`; None is no page, and "" says that there are counters."""
    if scrape is None:
        return "the server has no metrics page"
    names = names_of(scrape)
    if names is None:
        return "the metrics page is of no server that is known here" if scrape else "the metrics page holds no series"
    present = names.speculation(scrape)
    if not present:
        return f"the metrics page of {names.server} has no counters of speculation: it drafts nothing, or does not say"
    return f"the metrics page counts other models than {model}" if _foreign(scrape[present[0]], model) else ""


def _restarted(before: Scrape, after: Scrape, names: list[str]) -> bool:
    if before.get(_START) and before[_START] != after.get(_START):
        return True
    return any(
        after[name].get(labels, -1.0) < value for name in names for labels, value in before.get(name, {}).items()
    )


def _foreign(series: Mapping[Labels, float], model: str) -> bool:
    """Whether several models are counted apart and this one is none of them."""
    told = {value for labels in series for name, value in labels if name == "model_name"}
    return len(told) > 1 and model not in told


def _grown(before: Scrape, after: Scrape, name: str, model: str) -> dict[Labels, float]:
    series = after[name]
    own = {labels: value for labels, value in series.items() if ("model_name", model) in labels}
    return {labels: value - before.get(name, {}).get(labels, 0.0) for labels, value in (own or series).items()}


def _positions(grown: Mapping[Labels, float]) -> tuple[int, ...]:
    """Sums by the label `position`, from the first on."""
    sums: dict[int, float] = {}
    for labels, value in grown.items():
        position = dict(labels).get("position", "")
        if position.isdecimal() and int(position) < 4096:
            sums[int(position)] = sums.get(int(position), 0.0) + value
    return tuple(round(sums.get(i, 0.0)) for i in range(max(sums, default=-1) + 1))
