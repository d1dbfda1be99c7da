"""One round of speculative decoding. Everything else in forerun prepares this function or books its result.

A drafter guesses a tree of tokens under each sequence's newest token; the target scores all of it in one forward; the
verifier keeps the path that the target would have taken, and one token more that comes free with it. With an empty plan
the tree is its root alone, and the same lines are plain decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forerun.core.clock import NO_CLOCK, Clock
from forerun.core.draft import Draft
from forerun.core.noise import Noise, SeededNoise
from forerun.core.plan import Plan
from forerun.core.protocols import Drafter, StepTrace, Target, Verifier
from forerun.core.seq import Seq
from forerun.core.vocabulary import PLAIN, Vocabulary
from forerun.core.work import Item
from forerun.engine.books import grow, trace
from forerun.engine.sound import sound


@dataclass(frozen=True, slots=True)
class Parts:
    """What a step is made of."""

    target: Target
    drafter: Drafter
    verify: Verifier
    vocabulary: Vocabulary = PLAIN
    """How draws are made."""


def decode_step(
    seqs: Sequence[Seq],
    plan: Plan,
    parts: Parts,
    chunks: Sequence[Item] = (),
    noise: Noise | None = None,
    clock: Clock = NO_CLOCK,
) -> StepTrace:
    """One round for a batch: draft, score, verify, commit.

    `chunks` are parts of prompts read in the same forward (of sequences that do not decode yet). Room for the plan must
    have been reserved. Returns what happened; the sequences have grown by it.
    """
    noise = noise or SeededNoise([seq.seed for seq in seqs], parts.vocabulary.race)
    target, drafter = parts.target, parts.drafter
    with clock("draft"):
        draft = drafter.draft(seqs, plan, noise) if plan and seqs else Draft.roots(seq.last for seq in seqs)
        draft = sound(draft, seqs, plan, drafter.laws, target.spec.vocab_size)
    with clock("score"):
        work = [Item(seq, target.held(seq), len(seq) - 1, tree) for seq, tree in zip(seqs, draft.trees, strict=True)]
        rows = target.score([*work, *chunks], taps=drafter.taps)
    with clock("verify"):
        verdict = parts.verify(draft, rows, noise)
    with clock("commit"):
        target.commit(seqs, verdict.paths)
        if drafter.taps:
            drafter.read(rows)
        drafter.accept(seqs, draft, rows, verdict)
        emitted = grow(seqs, draft, verdict, rows)
    return trace(plan, draft, verdict, emitted, [*work, *chunks], clock)
