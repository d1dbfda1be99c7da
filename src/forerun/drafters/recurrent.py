"""What drafters with a recurrent head share: their slots, and a tree grown level by level, one forward a level.

The first forward feeds the slots that the target has made known, the root's last; the next ones feed guesses, each
with the state of its parent in the place of the target's feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from forerun.cache.view import Part
from forerun.core.draft import ALL_LAWS, Draft, Law, Tree, Verdict
from forerun.core.errors import unknown
from forerun.core.noise import Noise
from forerun.core.plan import Plan
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.costs.prices import FREE_WORTH, Prices, Worth
from forerun.drafters.growth import Growth
from forerun.drafters.ranges import number, whole
from forerun.drafters.slots import Slots
from forerun.drafters.word_rows import WordRows
from forerun.models.heads.config import FORMATS, RecurrentConfig
from forerun.models.heads.runner import RecurrentRunner
from forerun.trees.named import shape_of

BLOCK = 16
_NO_TREE = Tree((), ())


@dataclass(frozen=True, slots=True)
class HeadOptions:
    """How to draft with a trained head. SpecError for values out of range."""

    path: str = ""
    """The head: a folder, `org/name`, or nothing for the one that comes with forerun for this model."""
    law: Law = "foreseen"
    """As of the `model` drafter: chosen, foreseen, sampled or distinct."""
    format: str = "q4"
    """Of the head's matrices on the native runtime: q4 (the vocabulary's end in 4 bits, the rest in int8), int8, bf16
    or f32; what it guesses is checked all the same."""
    tree: str = ""
    """A static tree in the place of the growing one: eagle-25, medusa-63, chain-4, or a .json file of rank paths."""
    min_prob: float | None = None
    """Guesses whose path is less likely than this, by the head's own account, are left out of a growing tree. None is
    what each further row costs of the target's forward."""

    def __post_init__(self) -> None:
        if self.law not in ALL_LAWS:
            raise unknown("law", self.law, ALL_LAWS)
        if self.format not in FORMATS:
            raise unknown("format", self.format, FORMATS)
        if self.min_prob is not None:
            number(self, "min_prob", 0.0, 0.99)

    def worth(self, prices: Prices, level: float) -> Worth:
        """How likely a guess must be where a forward of the head costs `level` of the target's. Here a tree takes one
        forward, whatever its depth."""
        return Worth(prices, 0.0, self.min_prob)


@dataclass(frozen=True, slots=True)
class ReadingOptions(HeadOptions):
    """Of a head that looks back on its past. SpecError for values out of range."""

    window: int = 0
    """Latest tokens that the head looks back on, for texts longer than it was trained on; 0 is all of them."""
    sinks: int = 4
    """First tokens that it sees besides, if it looks back on a window."""
    chunk: int = 512
    """Tokens of a sequence's past that are read in one forward."""

    def __post_init__(self) -> None:
        HeadOptions.__post_init__(self)
        whole(self, "chunk", 1, 1 << 20)
        whole(self, "window", 0, 1 << 20)
        whole(self, "sinks", 0, 1 << 10)


@dataclass(frozen=True, slots=True)
class LevelOptions(ReadingOptions):
    """Of a head whose every level takes a forward. SpecError for values out of range."""

    level_rows: float | None = None
    """Rows of the target's forward that a forward of the head costs as much as: a level is grown where it promises so
    much. None is its share of the bytes that the target reads."""

    def __post_init__(self) -> None:
        ReadingOptions.__post_init__(self)
        if self.level_rows is not None:
            number(self, "level_rows", 0.0, 1000.0)

    def worth(self, prices: Prices, level: float) -> Worth:
        """As above, and what a level must promise."""
        row = prices.mean_row if self.min_prob is None else self.min_prob
        if self.level_rows is not None:
            level = self.level_rows * row
        elif self.min_prob is not None and prices.mean_row:
            level *= row / prices.mean_row  # in the prices that were said
        return Worth(prices, level, self.min_prob)


class RecurrentDrafter:
    """Drafts with `runner`'s head for a target of `vocab` words and `layers` layers.

    `kv_tokens` slots are shared by all open sequences; with `remember` they outlive them until memory is needed.
    """

    name = "recurrent"
    Options: type = LevelOptions

    def __init__(
        self,
        runner: RecurrentRunner,
        options: ReadingOptions,
        *,
        vocab: int,
        layers: int,
        kv_tokens: int,
        remember: bool = True,
        worth: Worth = FREE_WORTH,
    ) -> None:
        config = runner.head.config
        assert isinstance(config, RecurrentConfig)
        self.options, self.config, self._worth = options, config, worth
        self.laws: frozenset[Law] = frozenset({"chosen", options.law})
        self._shape = shape_of(options.tree) if options.tree else None
        self.taps = config.taps or (layers,)
        self._runner, self._vocab = runner, vocab
        blocks = max(1, kv_tokens // BLOCK)
        runner.open(blocks, BLOCK)
        self._slots = Slots(blocks, BLOCK, runner.copy_blocks, options.window, options.sinks, remember)

    def begin(self, seq: Seq) -> None:
        """Open the sequence; its slots come from the target's forwards."""
        self._slots.begin(seq)

    def recall(self, seq: Seq, held: int) -> int:
        """Tokens whose slots are remembered."""
        return self._slots.recall(seq, held)

    def read(self, rows: Rows) -> None:
        """Note the target's features of certain tokens."""
        self._slots.read(rows)

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """Note the target's features of what stands, whoever drafted it."""
        self._slots.accept(seqs, draft, rows, verdict)

    def end(self, seq: Seq) -> None:
        """Give the sequence's memory back."""
        self._slots.end(seq)

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """A tree for each sequence, all of them grown together; the root alone where there is no memory."""
        growths = [growth for b, seq in enumerate(seqs) if (growth := self._sprout(seq, b, plan))]
        self._grow(growths, noise)
        for growth in growths:
            self._slots.forget_guesses(growth.seq)
        grown = {growth.seq: growth.tree() for growth in growths}
        return Draft(tuple(grown.get(seq) or Tree.root(seq.last) for seq in seqs))

    def _sprout(self, seq: Seq, b: int, plan: Plan) -> Growth | None:
        """A root with memory for all that will be fed below it, or None."""
        depth = min(plan.depth, seq.room)
        if depth <= 0 or plan.nodes == 0 or seq not in self._slots:
            return None
        options = self.options
        growth = Growth(seq, b, depth, plan.width, plan, options.law, self._shape, self._worth)
        return growth if self._slots.room(seq, growth.feeds) else None

    def _grow(self, growths: Sequence[Growth], noise: Noise) -> None:
        """Level by level, until no tree wants more."""
        self._catch_up(growths)
        states: dict[Seq, list[Tensor]] = {growth.seq: [] for growth in growths}
        first = True
        while growing := [growth for growth in growths if growth.frontier]:
            items = [growth.on_its_own() for growth in growing]
            parts, tokens, features = [], list[int](), list[Tensor]()
            for item in items:
                slots = self._slots[item.seq]
                certain = len(slots.tokens) - 1 if first else 0
                tree = item.nodes
                start = slots.held if first else slots.held - 1
                parts.append(Part(self._slots.table(item.seq), start, certain, tree, item.seen))
                if first:
                    tokens += slots.tokens
                    features += slots.features
                else:
                    tokens += tree.tokens[item.seen :]
                    features += [states[item.seq][tree.parents[node]] for node in range(item.seen, len(tree))]
            done = self._runner.forward(parts, tokens, torch.stack(features), own=not first)
            rows = WordRows(
                items, done.logits, self._runner.head.words, self._vocab, done.best, self._runner.vocabulary
            )
            at = 0
            for i, (growth, item, part) in enumerate(zip(growing, items, parts, strict=True)):
                at += part.certain + item.fresh
                states[item.seq] += done.states[at - item.fresh : at].unbind(0)
                if first:
                    self._slots.fed(item.seq, part.certain + 1)
                growth.grow(rows, i, noise)
            first = False

    def _catch_up(self, growths: Sequence[Growth]) -> None:
        """Read what waits of these sequences until what is left fits beside their roots."""
        for growth in growths:
            slots = self._slots[growth.seq]
            while len(slots.tokens) > self.options.chunk:
                count = min(self.options.chunk, len(slots.tokens) - 1)
                part = Part(self._slots.table(growth.seq), slots.held, count, _NO_TREE)
                self._runner.forward([part], slots.tokens[:count], torch.stack(slots.features[:count]), own=False)
                self._slots.fed(growth.seq, count)
