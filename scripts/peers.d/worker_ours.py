"""Ours, as a worker (see forerun/lab/peers/workers/serve.py): an engine without a drafter, and its target alone.

Settings: file, threads, context, and `options` of forerun.load.
"""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import forerun
from forerun.core.draft import Tree
from forerun.core.params import SamplingParams
from forerun.core.seq import Seq, Token
from forerun.core.work import Item
from forerun.lab.subject import describe

REPEATS = 5  # of the forwards of a few milliseconds, within a turn


class Ours:
    """The tasks."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.engine = forerun.load(
            settings["file"], "none", threads=settings["threads"], reuse=False, kv_tokens=2 * settings["context"],
            **settings["options"],
        )  # fmt: skip
        self.target = self.engine.parts.target

    def answer(self, ids: list[int], max_tokens: int, ends: list[int]) -> dict[str, Any]:
        """As the peers answer; and milliseconds per token of the target alone."""
        result = self.engine.generate(ids, max_tokens=max_tokens, ignore_eos=not ends)
        stats = result.stats
        return {
            "tokens": list(result.token_ids),
            "first_s": stats.ttft_s,
            "decode_s": stats.ended_s - stats.first_s,
            "loop_ms": self.loop(ids, max_tokens),
        }

    def loop(self, ids: list[int], tokens: int) -> float:
        """Score, first best, commit."""
        target, seq = self.target, self.opened(ids, len(ids) - 1, tokens)
        start = perf_counter()
        for _ in range(tokens):
            target.reserve(seq, 1)
            rows = target.score([Item(seq, len(seq) - 1, len(seq) - 1, Tree.root(seq.last))])
            best = rows.argmax(0, 0)
            target.commit([seq], [()])
            seq.extend([Token(best)])
        ms = 1e3 * (perf_counter() - start) / tokens
        target.release(seq)
        return ms

    def rows(self, ids: list[int], held: int) -> dict[str, Any]:
        """Those behind the held ones, with a row of logits each, as a verification; and as a prompt's end, with one."""
        seq = self.opened(ids[: held + 1], held, len(ids))
        guessed = self.repeated(seq, held, Item(seq, held, held, Tree.chain(seq.last, ids[held + 1 :])))
        self.target.release(seq)
        seq = self.opened(ids, held, len(ids))
        read = self.repeated(seq, held, Item(seq, held, len(ids) - 1, Tree.root(seq.last)))
        self.target.release(seq)
        return {"ms": guessed, "one_row_ms": read}

    def read(self, ids: list[int]) -> dict[str, Any]:
        """All of a prompt in one forward."""
        seq = self.opened(ids, 0, 1)
        ms = timed(lambda: self.target.score([Item(seq, 0, len(ids) - 1, Tree.root(seq.last))]))
        self.target.release(seq)
        return {"ms": ms}

    def opened(self, tokens: list[int], held: int, more: int) -> Seq:
        """A sequence whose first `held` tokens are in memory, with room for more."""
        seq = Seq(0, tokens, SamplingParams(), self.target.spec.max_len)
        self.target.begin(seq)
        self.target.reserve(seq, len(tokens) + more)
        if held:
            self.target.score([Item(seq, 0, held)])
        return seq

    def repeated(self, seq: Seq, held: int, item: Item) -> float:
        """Median milliseconds of a forward that is taken back each time."""
        times = []
        for _ in range(REPEATS):
            times.append(timed(lambda: self.target.score([item])))
            self.target.truncate(seq, held)
            self.target.reserve(seq, len(item.seq) + len(item.tree))
        return median(times)


def timed(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return 1e3 * (perf_counter() - start)


def opened(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ran, and the tasks."""
    ours = Ours(settings)
    subject = describe(ours.target)
    names = ("runtime", "weights", "formats", "kv", "isa", "threads")
    facts = {"forerun": forerun.__version__, **{name: getattr(subject, name) for name in names}}
    return facts, {"answer": ours.answer, "rows": ours.rows, "read": ours.read}
