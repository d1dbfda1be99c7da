"""The books of a step: tokens into sequences, counts and seconds into statistics."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.core.clock import Clock
from forerun.core.draft import Draft, Tree, Verdict
from forerun.core.plan import Plan
from forerun.core.protocols import StepTrace
from forerun.core.rows import Rows
from forerun.core.seq import Seq, Token
from forerun.core.work import Item


def grow(seqs: Sequence[Seq], draft: Draft, verdict: Verdict, rows: Rows) -> list[int]:
    """Append to each sequence what stands and the bonus; returns how many tokens each took before it ended."""
    parts = zip(seqs, draft.trees, verdict.paths, verdict.bonus, strict=True)
    return [_grow(seq, tree, path, bonus, rows, b) for b, (seq, tree, path, bonus) in enumerate(parts)]


def _grow(seq: Seq, tree: Tree, path: Sequence[int], bonus: int, rows: Rows, b: int) -> int:
    """One sequence's tokens, each with the log-probabilities of its parent's row if they were asked for."""
    top = seq.params.logprobs
    parents = (0, *path)
    tokens = [*(tree.tokens[node] for node in path), bonus]
    taken = seq.extend(
        Token(token, i < len(path), None if top is None else rows.logprobs(b, parents[i], token, top))
        for i, token in enumerate(tokens)
    )
    seq.stats.count(tree.drafted, tree.depth, min(len(path), taken), taken)
    return taken


def trace(
    plan: Plan, draft: Draft, verdict: Verdict, emitted: Sequence[int], work: Sequence[Item], clock: Clock
) -> StepTrace:
    """Book the step, and each sequence's share of its time."""
    seconds = clock.lap()
    share = {phase: value / len(work) for phase, value in seconds.items()} if len(work) > 1 else seconds
    for item in work:
        item.seq.stats.prefilled += item.stop - item.start
        item.seq.stats.spend(share)
    seqs = [item.seq for item in work[: len(draft)]]
    dropped = tuple(seq.fault for seq in seqs)
    for seq in seqs:
        seq.stats.dropped += bool(seq.fault)
        seq.fault = ""
    return StepTrace(
        plan=plan,
        sizes=draft.sizes,
        depths=tuple(tree.depth for tree in draft.trees),
        accepted=verdict.accepted,
        emitted=tuple(emitted),
        prefilled=sum(item.stop - item.start for item in work),
        seconds=seconds,
        draft=draft,
        verdict=verdict,
        answers=tuple((seq.id, seq.index) for seq in seqs),
        lengths=tuple(item.stop + 1 for item in work[: len(draft)]),
        dropped=dropped,
    )
