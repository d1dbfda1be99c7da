"""Milliseconds of a forward over rows, batches and contexts: medians of interleaved rounds.

Every round visits every point once, in an order of its own, so that a drift of the machine falls on all alike. A visit
runs the forward twice and times the second: the first brings the weights, and this point's keys and values, to where
they lie when the same forward is repeated, as decoding does. Rows are fed to real sequences and rolled back, so that
the context of a point never changes. A round is a unit of the run: one that was kept is not measured again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, Literal, get_args

from forerun.core.draft import Tree
from forerun.core.errors import BrokenInvariant, CapacityError, SpecError, unknown
from forerun.core.params import SamplingParams
from forerun.core.protocols import Target
from forerun.core.seq import Seq
from forerun.core.work import Item, Work
from forerun.costs.curve import CostCurve, Point

Feed = Literal["chain", "tree", "prompt"]
"""How rows are fed: guessed one after another, as a binary tree, or as certain tokens with one row of logits."""

MOST_ROWS = 2048  # of all sequences in one forward: their logits alone are 400 MB for SmolLM2
_CHUNK = 512  # tokens of a context read at a time
_BLOCKS = 64  # tokens of memory for what a sequence leaves empty in its last blocks
Keep = Callable[[str, Callable[[], Any]], Any]
"""A unit's key and what measures it -> its record, as `Run.unit`."""


@dataclass(frozen=True, slots=True)
class Grid:
    """What is measured: every combination of rows, batches and contexts with at most MOST_ROWS rows in a forward."""

    rows: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    batches: tuple[int, ...] = (1,)
    contexts: tuple[int, ...] = (256,)
    repeats: int = 15
    feed: Feed = "chain"

    def __post_init__(self) -> None:
        if self.feed not in get_args(Feed):
            raise unknown("way to feed rows", self.feed, get_args(Feed))
        for name, values in (("rows", self.rows), ("batch", self.batches), ("context", self.contexts)):
            if not values or len(set(values)) < len(values) or min(values) < 1:
                shown = ",".join(map(str, values))
                raise SpecError(f"{name} takes different whole numbers from 1 up, as 1,16,64; got {shown!r}")
        if not 1 <= self.repeats <= 10_000:
            raise SpecError(f"repeats must be from 1 to 10000, got {self.repeats}")
        if max(self.rows) > MOST_ROWS:
            raise SpecError(f"rows must be at most {MOST_ROWS} in one forward, got {max(self.rows)}")
        if not self.points:
            raise SpecError(f"no combination of rows and batch stays within {MOST_ROWS} rows: take fewer of either")

    @property
    def points(self) -> list[Point]:
        """Every combination that is measured."""
        return [point for point in self._all if point.rows * point.batch <= MOST_ROWS]

    @property
    def left_out(self) -> list[Point]:
        """Combinations with too many rows for one forward."""
        return [point for point in self._all if point.rows * point.batch > MOST_ROWS]

    @property
    def _all(self) -> list[Point]:
        return [
            Point(rows, batch, context) for context in self.contexts for batch in self.batches for rows in self.rows
        ]

    @property
    def longest(self) -> int:
        """Tokens that the longest sequence reaches."""
        return max(self.contexts) + max(self.rows)

    @property
    def widest(self) -> int:
        """Sequences of the largest batch that is measured."""
        return max(point.batch for point in self.points)

    @property
    def kv_tokens(self) -> int:
        """Memory for all sequences at once, in tokens, blocks that are not full included."""
        return sum(self.widest * (context + max(self.rows) + _BLOCKS) for context in self.contexts)


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds of every point, round by round."""

    seconds: dict[Point, list[float]]

    def curve(self) -> CostCurve:
        """The medians."""
        return CostCurve({point: median(values) for point, values in self.seconds.items()})

    def ratio(self, point: Point, to: Point) -> tuple[float, float, float]:
        """Time of `point` over that of `to`, round by round: (median, lowest, highest)."""
        ratios = [a / b for a, b in zip(self.seconds[point], self.seconds[to], strict=True)]
        return median(ratios), min(ratios), max(ratios)

    def to_json(self) -> list[dict[str, object]]:
        """One object a round and point."""
        return [
            {"round": done, **point._asdict(), "seconds": seconds}
            for point, values in self.seconds.items()
            for done, seconds in enumerate(values, 1)
        ]


def measure(
    target: Target,
    grid: Grid,
    *,
    between: Callable[[int], None] = lambda done: None,
    keep: Keep = lambda key, times: times(),
    track: Callable[[Iterable[int], str], Iterable[int]] = lambda rounds, what: rounds,
    seed: int = 0,
) -> Samples:
    """Time `target.score` at every point of the grid.

    `between(n)` is called before the first round and after each, with the number of rounds that are done; `keep` is
    given every round, `track` shows how far they are. SpecError if the target's context is too short or it cannot score
    trees, CapacityError if its memory is too small.
    """
    _check(target, grid)
    opened: list[Seq] = []
    try:
        arms = _arms(target, grid, random.Random(seed), opened)
        for arm in arms.values():  # what is compiled or allocated on first use is not a forward's cost
            arm.run(target)
        seconds: dict[Point, list[float]] = {point: [] for point in arms}
        between(0)
        for done in track(range(1, grid.repeats + 1), "rounds"):
            order = random.Random(f"{seed}/{done}").sample(list(arms), len(arms))  # its own, wherever a run goes on
            times = keep(f"round/{done}", partial(_round, target, arms, order))
            for point, value in zip(arms, times, strict=True):
                seconds[point].append(value)
            between(done)
        return Samples(seconds)
    finally:
        for seq in opened:
            target.release(seq)


def _round(target: Target, arms: Mapping[Point, _Arm], order: Sequence[Point]) -> list[float]:
    """Seconds of every point, in the order of `arms`; they are visited in `order`."""
    times = {}
    for point in order:
        arms[point].run(target)
        times[point] = arms[point].run(target)
    return [times[point] for point in arms]


@dataclass(frozen=True, slots=True)
class _Arm:
    """One point: its work, and for certain tokens those that its sequences have while it runs."""

    work: Work
    held: int
    rows: int
    certain: tuple[tuple[int, ...], ...]

    def run(self, target: Target) -> float:
        """Seconds of one forward, which is then taken back."""
        for item, tokens in zip(self.work, self.certain, strict=True):
            item.seq.tokens[self.held :] = tokens
            if not target.reserve(item.seq, self.rows):
                raise CapacityError(f"no memory left for {self.rows} rows of {item.seq}: give kv_tokens more")
        start = perf_counter()
        target.score(self.work)
        seconds = perf_counter() - start
        for item in self.work:
            target.truncate(item.seq, self.held)
            if target.held(item.seq) != self.held:
                raise BrokenInvariant(f"{item.seq} was cut to {self.held} tokens, {target.held(item.seq)} are held")
        return seconds


def _check(target: Target, grid: Grid) -> None:
    spec = target.spec
    if grid.longest > spec.max_len:
        raise SpecError(
            f"a context of {max(grid.contexts)} with {max(grid.rows)} rows reaches {grid.longest} tokens, {spec.name} "
            f"has {spec.max_len}: take fewer rows or a shorter context"
        )
    if grid.feed == "tree" and not spec.trees:
        raise SpecError(f"{spec.name} can only score chains on this runtime: leave --tree out")


def _arms(target: Target, grid: Grid, rng: random.Random, opened: list[Seq]) -> dict[Point, _Arm]:
    """Sequences of every context, read into memory and noted in `opened`, and the work of every point over them."""
    arms: dict[Point, _Arm] = {}
    for context in grid.contexts:
        seqs = [_sequence(target, len(opened) + i, context, rng) for i in range(grid.widest)]
        for seq in seqs:
            target.begin(seq)
            opened.append(seq)
            _read(target, seq, context - 1, context + max(grid.rows))
        for point in grid.points:
            if point.context == context:
                arms[point] = _arm(seqs[: point.batch], point, grid.feed, target.spec.vocab_size, rng)
    return arms


def _sequence(target: Target, index: int, context: int, rng: random.Random) -> Seq:
    tokens = [rng.randrange(target.spec.vocab_size) for _ in range(context)]
    return Seq(index, tokens, SamplingParams(), target.spec.max_len)


def _read(target: Target, seq: Seq, length: int, reach: int) -> None:
    """Hold the first `length` tokens of a sequence, with room for `reach`."""
    if not target.reserve(seq, reach - target.held(seq)):
        raise CapacityError(f"no memory for a context of {length + 1} tokens: give kv_tokens more, or fewer contexts")
    while (held := target.held(seq)) < length:
        target.score([Item(seq, held, min(held + _CHUNK, length))])


def _arm(seqs: Sequence[Seq], point: Point, feed: Feed, vocab: int, rng: random.Random) -> _Arm:
    """The forward of one point over `seqs`, which hold all but the last token of their context."""
    held = point.context - 1
    roots = [seq.last for seq in seqs]
    if feed == "prompt":
        certain = [(root, *(rng.randrange(vocab) for _ in range(point.rows - 1))) for root in roots]
        work = [
            Item(seq, held, held + point.rows - 1, Tree.root(tokens[-1]))
            for seq, tokens in zip(seqs, certain, strict=True)
        ]
        return _Arm(work, held, point.rows, tuple(certain))
    parents = [(node - 1) // 2 if feed == "tree" else node - 1 for node in range(1, point.rows)]
    trees = [Tree((root, *(rng.randrange(vocab) for _ in parents)), (-1, *parents)) for root in roots]
    work = [Item(seq, held, held, tree) for seq, tree in zip(seqs, trees, strict=True)]
    return _Arm(work, held, point.rows, tuple((root,) for root in roots))
