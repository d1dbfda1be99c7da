"""A smaller model as the drafter: classic speculative decoding (Leviathan et al. 2211.17192, Chen et al. 2302.01318).

Any causal model behind the `Target` protocol, with its own memory. It reads what it has not read of each sequence, then
grows chains or trees, one forward a level for the whole batch. Where its memory or its context is at an end a sequence
simply goes on without drafts. Rows come through the same parameters as the target's, so q is what was drawn from.

A draft model may lack some of the target's ids, or mean another token by them: those are never guessed. Text that holds
an id which it has no row for is not read, so that sequence goes on without drafts too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from forerun.core.draft import ALL_LAWS, Draft, Law, Tree, Verdict
from forerun.core.errors import unknown
from forerun.core.noise import Noise
from forerun.core.plan import Plan
from forerun.core.protocols import Target
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.costs.prices import FREE, Prices, Worth
from forerun.drafters.growth import Growth
from forerun.drafters.ranges import number, whole
from forerun.drafters.word_rows import WordRows


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How to draft with a model. SpecError for values out of range."""

    path: str = ""
    """The draft model: `org/name`, a folder or a .gguf file."""
    weights: str = "auto"
    """Its weights on the native runtime, as of the target. auto is int8 for a folder's floats, since what it guesses is
    checked all the same, and what a .gguf file holds."""
    law: Law = "foreseen"
    """chosen: the likeliest tokens; foreseen: what the target would draw if it agreed; sampled, distinct: drawn."""
    level_cost: float | None = None
    """What a forward of the draft model costs of the target's: a level is grown where it promises so much, by the draft
    model's own account. None is its share of the bytes that the target reads."""
    chunk: int = 512
    """Tokens of a sequence's past that are read in one forward."""

    def __post_init__(self) -> None:
        checked(self, self.law, self.level_cost)


def checked(options: object, law: str, level_cost: float | None) -> None:
    """SpecError for values out of range, in the name of whose options they are."""
    if level_cost is not None:
        number(options, "level_cost", 0.0, 1000.0)
    if law not in ALL_LAWS:
        raise unknown("law", law, ALL_LAWS)
    whole(options, "chunk", 1, 1 << 20)


class ModelDrafter:
    """Drafts with `target`, a model of its own, a forward of which costs `share` of the verifying one's. Both have one
    vocabulary, or share the ids `words` [W], ascending, of the verifying one's `vocab`."""

    name = "model"
    Options: type = ModelOptions
    taps: tuple[int, ...] = ()

    def __init__(
        self,
        target: Target,
        options: ModelOptions | None = None,
        share: float = 0.0,
        words: Tensor | None = None,
        vocab: int = 0,
        prices: Prices = FREE,
    ) -> None:
        self.target = target
        self.options = options or ModelOptions()
        self._words, self._vocab = words, vocab
        self._worth = Worth(prices, share if self.options.level_cost is None else self.options.level_cost)
        self.laws: frozenset[Law] = frozenset({"chosen", self.options.law})
        self._open: set[Seq] = set()
        self._grown: dict[Seq, Growth] = {}

    def begin(self, seq: Seq) -> None:
        """Open the sequence; it is read when a draft is first wanted."""
        self._open.add(seq)
        self.target.begin(seq)

    def read(self, rows: Rows) -> None:
        """No taps."""

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """A tree for each sequence, all of them grown together; the root where memory or context do not suffice."""
        for seq in seqs:
            if self._grown.pop(seq, None):  # the last draft was never judged
                self.target.truncate(seq, self.target.held(seq))
        growths = [growth for b, seq in enumerate(seqs) if (growth := self._sprout(seq, b, plan))]
        self._catch_up([growth.seq for growth in growths])
        self._grown |= {growth.seq: growth for growth in growths}
        while growing := [growth for growth in growths if growth.frontier]:
            rows = self.target.score([growth.item(self.target.held(growth.seq)) for growth in growing], keep=True)
            if self._words is not None:
                rows = WordRows.among(rows, self._words, self._vocab)
            for i, growth in enumerate(growing):
                growth.grow(rows, i, noise)
        grown = self._grown
        return Draft(tuple(grown[seq].tree() if seq in grown else Tree.root(seq.last) for seq in seqs))

    def _sprout(self, seq: Seq, b: int, plan: Plan) -> Growth | None:
        """A root with memory reserved for all that will be fed under it, or None."""
        context = self.target.spec.max_len - len(seq) + 1  # the deepest node is never fed
        depth = min(plan.depth, seq.room, context)
        if context <= 0 or self._foreign(seq):
            self.end(seq)
        if depth <= 0 or plan.nodes == 0 or seq not in self._open:
            return None
        width = plan.width if self.target.spec.trees else 1
        growth = Growth(seq, b, depth, width, plan, self.options.law, worth=self._worth)
        unread = len(seq) - 1 - self.target.held(seq)
        return growth if self.target.reserve(seq, unread + growth.feeds) else None

    def _foreign(self, seq: Seq) -> bool:
        """Whether what is to be read of a sequence holds ids that this model has no row for."""
        if self._words is None or seq not in self._open:
            return False
        return max(seq.tokens[self.target.held(seq) :], default=0) >= self.target.spec.vocab_size

    def _catch_up(self, seqs: Sequence[Seq]) -> None:
        """Read the past of these sequences until what is left fits beside their roots."""
        held, chunk = self.target.held, self.options.chunk
        while sum(len(seq) - 1 - held(seq) for seq in seqs) > chunk:
            left, work = chunk, []
            for seq in seqs:
                start = held(seq)
                stop = min(len(seq) - 1, start + left)
                if stop > start:
                    work.append(Item(seq, start, stop))
                    left -= stop - start
            self.target.score(work)

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """Hold what stands of what was fed, whoever drafted it: paths are matched by their tokens."""
        mine, paths = [], []
        for seq, tree, path in zip(seqs, draft.trees, verdict.paths, strict=True):
            if growth := self._grown.pop(seq, None):
                mine.append(seq)
                paths.append(growth.fed_path([tree.tokens[node] for node in path]))
        if mine:
            self.target.commit(mine, paths)

    def end(self, seq: Seq) -> None:
        """Give the sequence's memory back."""
        self._grown.pop(seq, None)
        self.target.release(seq)
        self._open.discard(seq)
