"""Who runs in the next step, with how much prompt and how much draft, within the target's memory.

First come, first served. A step decodes every sequence whose prompt is read (or whose rest fits the step's share of
prompt tokens) and reads a chunk of the other prompts in the same forward. When memory is short, drafts go first; then
the youngest sequence is put back in the queue and will read its tokens again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from forerun.core.errors import CapacityError, SpecError
from forerun.core.plan import Load, Plan
from forerun.core.protocols import Target
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.engine.guard import Guard

NO_DRAFTS = Plan.none()
HEADROOM = 32  # tokens of growth that admission leaves room for, or two sequences would evict each other


@dataclass(frozen=True, slots=True)
class Round:
    """One step's work: sequences that decode, chunks of prompts that are read, and how far to guess."""

    seqs: tuple[Seq, ...]
    chunks: tuple[Item, ...]
    plan: Plan

    def __bool__(self) -> bool:
        return bool(self.seqs or self.chunks)


class Scheduler:
    """The queue and the running batch. `chunk` is the most prompt tokens of a step, `max_batch` the most sequences."""

    def __init__(self, target: Target, drafter: Guard, chunk: int, max_batch: int) -> None:
        for name, value in (("chunk", chunk), ("max_batch", max_batch)):
            if value < 1:
                raise SpecError(f"{name} must be a whole number from 1 up, got {value}: nothing would ever run")
        self._target = target
        self._drafter = drafter
        self._chunk = chunk
        self._max_batch = max_batch
        self.waiting: deque[Seq] = deque()
        self.running: list[Seq] = []

    def add(self, seqs: Iterable[Seq]) -> None:
        """Queue the answers of a request."""
        self.waiting.extend(seqs)

    def remove(self, seq: Seq) -> None:
        """Take a finished or cancelled sequence out, and give its memory back."""
        if seq in self.running:
            self.running.remove(seq)
            self._close(seq)
        elif seq in self.waiting:
            self.waiting.remove(seq)

    @property
    def busy(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self.waiting or self.running)

    def restart(self, seqs: Sequence[Seq]) -> None:
        """After something was broken off: `seqs`, all that are known, hold nothing, and the unfinished wait in order.

        Target and drafters may have got to different points; beginning again brings them together.
        """
        self.running = []
        self.waiting = deque(seq for seq in seqs if not seq.finished)
        for seq in seqs:
            self._close(seq)

    def round(self, plan_for: Callable[[Load], Plan]) -> Round:
        """The next step's work, its memory reserved; empty if there is nothing to do."""
        self._admit()
        while self.running:
            decoding, chunks = self._split()
            plan = plan_for(self._load(decoding, chunks)) if decoding else NO_DRAFTS
            for attempt in (plan, NO_DRAFTS) if plan else (plan,):
                if self._reserve(decoding, chunks, attempt):
                    return Round(tuple(decoding), tuple(chunks), attempt)
                for seq in decoding:  # or what some got for their drafts would be missing for others' plain steps
                    self._target.truncate(seq, self._target.held(seq))
            self._preempt()
        return Round((), (), NO_DRAFTS)

    def _admit(self) -> None:
        for _ in range(len(self.waiting)):
            if len(self.running) >= self._max_batch:
                return
            seq = self.waiting[0]
            if self._would_repeat(seq):
                self.waiting.rotate(-1)
                continue
            # Room for the whole prompt and some growth, or wait: half a prompt in memory is of no use to anybody.
            reused = self._begin(seq)
            if self.running and not self._target.reserve(seq, len(seq) - reused + HEADROOM):
                self._target.release(seq)
                return
            self.running.append(self.waiting.popleft())
            self._drafter.begin(seq)
            if not seq.output:
                seq.stats.reused = reused

    def _begin(self, seq: Seq) -> int:
        """Open a sequence in the target; returns how many of its tokens need not be read.

        A drafter with taps needs those read that it does not know itself: of tokens that are not read it would see no
        hidden states.
        """
        reused = self._target.begin(seq)
        if reused and self._drafter.taps:
            reused = self._drafter.recall(seq, reused)
            self._target.truncate(seq, reused)
        return reused

    def _would_repeat(self, seq: Seq) -> bool:
        """Whether a sibling is reading the same prompt right now, which can be shared once it is read."""
        if self._drafter.taps:
            return False
        return any(other.id == seq.id and self._target.held(other) < other.prompt_len - 1 for other in self.running)

    def _split(self) -> tuple[list[Seq], list[Item]]:
        """Sequences that can decode, and chunks of the others' prompts, within the step's share of prompt tokens."""
        decoding, chunks, share = [], [], self._chunk
        for seq in self.running:
            held = self._target.held(seq)
            unread = len(seq) - 1 - held
            if unread <= share:
                decoding.append(seq)
            elif share:
                chunks.append(Item(seq, held, held + share))
            share -= min(unread, share)
        return decoding, chunks

    def _load(self, decoding: list[Seq], chunks: list[Item]) -> Load:
        return Load(
            running=len(decoding),
            waiting=len(self.waiting),
            prefilling=sum(len(seq) - 1 - self._target.held(seq) for seq in decoding)
            + sum(item.stop - item.start for item in chunks),
            context=max(len(seq) for seq in self.running),
        )

    def _reserve(self, decoding: list[Seq], chunks: list[Item], plan: Plan) -> bool:
        target = self._target
        return all(target.reserve(seq, len(seq) - target.held(seq) + plan.most(seq.room)) for seq in decoding) and all(
            target.reserve(item.seq, len(item.certain)) for item in chunks
        )

    def _preempt(self) -> None:
        """Put the youngest sequence back at the head of the queue."""
        if len(self.running) == 1:
            seq = self.running[0]
            seq.error = CapacityError(
                f"memory is too small for one sequence of {len(seq)} tokens; give the engine more (kv_tokens)"
            )
            raise seq.error
        seq = self.running.pop()
        self._close(seq)
        seq.stats.preempted += 1
        self.waiting.appendleft(seq)

    def _close(self, seq: Seq) -> None:
        self._target.release(seq)
        self._drafter.end(seq)
