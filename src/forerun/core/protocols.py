"""The four doors: target, drafter, verifier, controller.

Rooms on the floor above meet only through these. Everything that decodes is one of them: a cascade of drafters is a
drafter, a draft model is a target in a drafter's hands, a noisy target for tests is a target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from forerun.core.draft import Draft, Law, Verdict
from forerun.core.errors import SpecError
from forerun.core.noise import Noise
from forerun.core.plan import Load, Plan
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.core.work import Work


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What others need to know of a model."""

    name: str
    vocab_size: int
    """Real tokens, padding of the tables not counted."""
    max_len: int
    """Context in tokens."""
    hidden_size: int
    layers: int
    dtype: str
    device: str
    fingerprint: str
    """Same weights, same fingerprint."""
    trees: bool = True
    """Whether it can score more than a chain."""
    weight_bytes: int = 0
    """Bytes of weights that every forward reads; 0 if nobody knows."""

    def check_taps(self, taps: Sequence[int]) -> None:
        """SpecError for layers whose hidden states cannot be had."""
        for tap in taps:
            if not 0 <= tap <= self.layers or not self.layers:
                last = f"allowed 0..{self.layers}, {self.layers} for the final norm"
                raise SpecError(f"tap {tap} is not a layer of {self.name}: {last}")


class Target(Protocol):
    """A model with a memory. It holds, between calls, all of each open sequence but its last token."""

    @property
    def spec(self) -> ModelSpec: ...

    def beside(self, *, kv_tokens: int | None = None) -> Target:
        """The same model with memory of its own, for as many tokens if nobody says: only the weights are shared."""
        ...

    def begin(self, seq: Seq) -> int:
        """Open a sequence; returns how many of its leading tokens are held already, shared with earlier ones."""
        ...

    def held(self, seq: Seq) -> int:
        """Tokens of an open sequence that are held for good."""
        ...

    def reserve(self, seq: Seq, tokens: int) -> bool:
        """Make room for that many tokens beyond those held; all or nothing."""
        ...

    def score(self, work: Work, keep: bool = False, taps: Sequence[int] = ()) -> Rows:
        """One forward over every item. Guessed nodes stay until `commit`; with `keep` more may be added below them.

        Without `keep`, nodes guessed for a sequence before are forgotten first. With `taps` the rows bring the hidden
        states of these layers, side by side, for all that is fed; SpecError for layers that cannot be had.
        """
        ...

    def commit(self, seqs: Sequence[Seq], paths: Sequence[Sequence[int]]) -> None:
        """Hold each sequence's root and the nodes of its path, as far as they were fed, and forget the other nodes."""
        ...

    def truncate(self, seq: Seq, length: int) -> None:
        """Hold only the first `length` tokens, and no guesses."""
        ...

    def release(self, seq: Seq) -> None:
        """Close a sequence; what it held may be shared with later ones. Nothing happens to one that is not open; one
        whose `begin`, or whatever came after it, was broken off is closed as well."""
        ...


class Drafter(Protocol):
    """Guesses what comes next.

    The engine drops whatever cannot be a guess, and after an exception begins or ends the sequences anew.
    """

    name: str
    laws: frozenset[Law]
    """Laws of the trees it may return."""
    taps: tuple[int, ...]
    """Target layers whose input hidden states it wants to see; () for none."""

    def begin(self, seq: Seq) -> None:
        """A sequence starts (or comes back after preemption); its tokens so far are its prompt."""
        ...

    def read(self, rows: Rows) -> None:
        """The target has read certain tokens (prompt chunks among `rows.items`); only called if there are taps."""
        ...

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """A tree for each sequence, under its last token, within the plan and within `seq.room`."""
        ...

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """The verdict on `draft`, which may be another drafter's. Called before the sequences grow."""
        ...

    def end(self, seq: Seq) -> None:
        """A sequence ended or was preempted: forget it, also if it is not known or its `begin` was broken off."""
        ...


@runtime_checkable
class Remembers(Protocol):
    """A drafter that learns from finished answers; whoever measures it must make it forget between runs."""

    def forget(self) -> None:
        """Know nothing of earlier answers."""
        ...


@runtime_checkable
class Recalls(Protocol):
    """A drafter with taps that keeps what it made of earlier sequences' beginnings: without it the target must read all
    of every sequence, since of tokens that are not read there are no hidden states."""

    def recall(self, seq: Seq, held: int) -> int:
        """How many of the `held` leading tokens of a sequence that is to begin the target need not read again for this
        drafter's sake."""
        ...


class Verifier(Protocol):
    """Decides which path of a draft stands: a pure function of draft, rows and noise."""

    name: str
    laws: frozenset[Law]
    """Laws it can judge."""
    chains_only: bool
    greedy_only: bool
    lossless: bool
    """False is said out loud by whoever runs it."""

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class StepTrace:
    """One step, for controllers and the lab."""

    plan: Plan
    sizes: tuple[int, ...]
    """Nodes of each tree, root included."""
    depths: tuple[int, ...]
    """Deepest node of each tree."""
    accepted: tuple[int, ...]
    emitted: tuple[int, ...]
    """Tokens gained, after stops and limits."""
    prefilled: int
    """Certain tokens fed in the same forward."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    draft: Draft = field(default_factory=lambda: Draft(()))
    """What was drafted, and what the target made of it."""
    verdict: Verdict = field(default_factory=lambda: Verdict((), ()))
    answers: tuple[tuple[int, int], ...] = ()
    """Request and index of each sequence."""
    lengths: tuple[int, ...] = ()
    """Tokens of each sequence before it grew: the root is the last of them."""
    dropped: tuple[str, ...] = ()
    """What was wrong with each sequence's guess if it, or a part of it, was dropped; else nothing."""


class Controller(Protocol):
    """Says how far to guess, and learns from what came of it."""

    def plan(self, load: Load) -> Plan: ...

    def observe(self, step: StepTrace) -> None: ...
