"""What a drafting head holds of each sequence: slots of (the target's feature of a token, the token after it).

Slot i pairs token i + 1 with the feature of token i, so it is known as soon as the target has read token i. Slots come
from the target's forwards (`read`, `accept`) and wait until a draft is wanted; then they are fed with its root. What is
guessed below the root is forgotten at once: those slots held the head's own features.

What was fed outlives its sequence, for later ones that begin alike.

Every slot is kept, past the positions that the head learnt too: its rotations go on, as in the published code. With a
window the head sees the first slots (`sinks`) and the latest ones only. When twice the window is full, it is read anew
from the latest: positions then stay small, which is where heads were trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from torch import Tensor

from forerun.cache.pool import BlockPool, Table
from forerun.core.draft import Draft, Verdict
from forerun.core.rows import Rows
from forerun.core.seq import Seq


@dataclass(slots=True)
class Context:
    """One sequence's slots: `held` in memory, then those that wait."""

    known: int = 0
    """Slots that there were so far."""
    held: int = 0
    keys: list[int] = field(default_factory=list)
    """What each of those held is known by."""
    tokens: list[int] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)
    """One row each."""
    recent_tokens: list[int] = field(default_factory=list)
    recent: list[Tensor] = field(default_factory=list)
    """What was fed last, in case it is wanted again: at least the root's slot, with a window all of it."""

    def add(self, tokens: Sequence[int], features: Tensor) -> None:
        """Slots that are now known."""
        self.known += len(tokens)
        self.tokens += tokens
        self.features += features.unbind(0)


class Slots:
    """The slots of all open sequences, in block memory of `blocks` blocks.

    `window` is how many of the latest slots are seen besides the first `sinks`; 0 is all of them. With `remember` off
    nothing outlives its sequence. `copy` copies whole blocks (from, to) of the memory.
    """

    def __init__(
        self,
        blocks: int,
        block_size: int,
        copy: Callable[[Sequence[tuple[int, int]]], None],
        window: int = 0,
        sinks: int = 4,
        remember: bool = True,
    ) -> None:
        self.pool = BlockPool(blocks, block_size, remember and not window)
        longest = blocks * block_size
        self._most = longest if not window else min(longest, sinks + 2 * window)
        self._window, self._sinks = window, sinks
        self._copy = copy
        self._open: dict[Seq, Context] = {}

    def begin(self, seq: Seq) -> None:
        """Open a sequence; what is remembered of its beginning is known at once."""
        keys = _keys(seq.tokens)
        known = self.pool.open(seq, keys if self.pool.remember else ())
        self._open[seq] = Context(known, known, keys=keys[:known])

    def recall(self, seq: Seq, held: int) -> int:
        """How many of the `held` leading tokens have slots, whole blocks of them, that are known when the sequence
        begins."""
        size = self.pool.block_size
        return min(self.pool.known(_keys(seq.tokens)), held // size * size) if self.pool.remember else 0

    def end(self, seq: Seq) -> None:
        """Give the sequence's memory back."""
        self.pool.close(seq)
        self._open.pop(seq, None)

    def __contains__(self, seq: Seq) -> bool:
        return seq in self._open

    def __getitem__(self, seq: Seq) -> Context:
        return self._open[seq]

    def table(self, seq: Seq) -> Table:
        """Where its slots lie."""
        return self.pool.table(seq)

    def read(self, rows: Rows) -> None:
        """Slots of the certain tokens that the target has read."""
        assert rows.hidden is not None
        at = 0
        for item in rows.items:
            count = item.stop - item.start
            if count and item.seq in self._open:
                self._read_again(item.seq, item.start)
                self._open[item.seq].add(item.seq.tokens[item.start + 1 : item.stop + 1], rows.hidden[at : at + count])
            at += count + item.fresh

    def _read_again(self, seq: Seq, start: int) -> None:
        """What the target reads from `start` on counts, whatever was remembered of it."""
        context = self._open[seq]
        if start < context.known:
            context.known = context.held = start
            del context.keys[start:]
            self.pool.cut(seq, start)

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """Slots of each root and of the path that stands below it."""
        assert rows.hidden is not None
        at, emitted = 0, verdict.emitted(draft)
        for b, item in enumerate(rows.items):
            at += item.stop - item.start
            if b < len(seqs) and item.seq in self._open:
                nodes = [at, *(at + node for node in verdict.paths[b])]
                self._open[item.seq].add(emitted[b], rows.hidden[nodes])
            at += item.fresh

    def room(self, seq: Seq, guesses: int) -> bool:
        """Make memory for what waits and for `guesses` slots below it; False if there is none, or if the target has
        not read all of the sequence but its last token."""
        context = self._open[seq]
        if not context.known or context.known != len(seq) - 1:
            return False
        if not context.tokens:
            self._again(context)
        if self._window and context.held + len(context.tokens) + guesses > self._most:
            self._start_anew(seq, context, guesses)
        length = context.held + len(context.tokens) + guesses
        copies = self.pool.grow(seq, context.held, length) if length <= self._most else None
        if copies:
            self._copy(copies)
        return copies is not None

    def _again(self, context: Context) -> None:
        """The root's slot, which is held, waits again: two drafts are wanted of one step."""
        context.tokens, context.features = context.recent_tokens[-1:], context.recent[-1:]
        del context.recent_tokens[-1:], context.recent[-1:]
        context.held -= len(context.tokens)
        del context.keys[context.held :]

    def _start_anew(self, seq: Seq, context: Context, guesses: int) -> None:
        """See only the sinks and the latest slots from now on."""
        tokens = [*context.recent_tokens, *context.tokens]
        features = [*context.recent, *context.features]
        keep = min(self._window, self._most - self._sinks - guesses)
        context.held = min(self._sinks, context.held)
        if context.held < self._sinks:  # nothing was fed yet: the sinks wait among the others
            first = self._sinks - context.held
            tokens = [*tokens[:first], *tokens[first:][-keep:]] if len(tokens) > first + keep else tokens
            features = [*features[:first], *features[first:][-keep:]] if len(features) > first + keep else features
        else:
            tokens, features = tokens[-keep:], features[-keep:]
        context.tokens, context.features = tokens, features
        context.recent_tokens, context.recent = [], []
        self.pool.cut(seq, context.held)

    def fed(self, seq: Seq, count: int) -> None:
        """The first `count` waiting slots are held now."""
        context = self._open[seq]
        keep = self._most if self._window else 1
        if self.pool.remember:
            context.keys += _keys(seq.tokens[context.held : context.held + count + 1])
            self.pool.record(seq, context.keys[:-1])  # the last may be fed again
        context.recent_tokens += context.tokens[:count]
        context.recent += context.features[:count]
        del context.recent_tokens[:-keep], context.recent[:-keep]
        del context.tokens[:count], context.features[:count]
        context.held += count

    def forget_guesses(self, seq: Seq) -> None:
        """Only true slots stay in memory."""
        self.pool.cut(seq, self._open[seq].held)


def _keys(tokens: Sequence[int]) -> list[int]:
    """What the slots of these tokens are known by: each is of two tokens that follow one another."""
    return [(first << 32) + second for first, second in pairwise(tokens)]
