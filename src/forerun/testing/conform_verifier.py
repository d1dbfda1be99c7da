"""Does a verifier keep the contract? Its verdicts must be possible, pure, the same in any batch, and greedy at 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from forerun.core.draft import LAWS, Draft, Law, Tree, Verdict
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.protocols import Verifier
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.testing.noisy import NoisyDrafter
from forerun.testing.toy import NextLaw, table_law
from forerun.testing.watch import WatchedNoise

VOCAB = 8
PROMPTS = ((1, 2, 3), (4,), (0, 5, 5, 6, 1, 2))


def check_verifier(make: Callable[[], Verifier], rounds: int = 12) -> None:
    """Judge drafts of every law that it declares; AssertionError or BrokenInvariant says what it broke.

    Losslessness itself is not measured here but by `forerun.testing.gate`, exactly.
    """
    verify = make()
    greedy_only = bool(getattr(verify, "greedy_only", False))
    heats = (0.0,) if greedy_only else (0.0, 0.7, 1.0)
    for kind in sorted(verify.laws & LAWS):
        for round_ in range(rounds):
            _round(verify, kind, round_, heats[round_ % len(heats)])


def _round(verify: Verifier, kind: Law, round_: int, heat: float) -> None:
    """One batch: verdicts must exist, repeat, and not depend on the neighbours."""
    law = table_law(VOCAB, seed=round_, order=2, zeros=0.3)
    ask = SamplingParams(temperature=heat, seed=round_, top_k=5 if round_ % 4 == 3 else 0)
    seqs = [Seq(i, prompt, ask, 4096, index=i) for i, prompt in enumerate(PROMPTS)]
    plan = Plan(1 + round_ % 4, nodes=9, width=1 if verify.chains_only else 1 + round_ % 3)
    drafter = NoisyDrafter(law, wrong=0.3, seed=round_, kind=kind)
    draft = drafter.draft(seqs, plan, SeededNoise([seq.seed for seq in seqs]))
    if round_ % 5 == 4:
        draft = Draft((Tree.root(seqs[0].last), *draft.trees[1:]))
    verdict = _judge(verify, draft, seqs, law)
    assert _judge(verify, draft, seqs, law) == verdict, f"{verify.name} judged the same draft in two ways: not pure"
    for b, (seq, tree) in enumerate(zip(seqs, draft.trees, strict=True)):
        path, bonus = verdict.paths[b], verdict.bonus[b]
        _possible(verify, seq, tree, path, bonus, law)
        alone = _judge(verify, Draft((tree,)), [seq], law)
        assert (alone.paths[0], alone.bonus[0]) == (path, bonus), (
            f"{verify.name} judges otherwise in a batch than alone"
        )


def _judge(verify: Verifier, draft: Draft, seqs: Sequence[Seq], law: NextLaw) -> Verdict:
    rows = rows_of(draft, seqs, law)
    before = rows_of(draft, seqs, law)
    verdict = verify(draft, rows, WatchedNoise(SeededNoise([seq.seed for seq in seqs])))
    assert len(verdict.paths) == len(verdict.bonus) == len(seqs), f"{verify.name}: a verdict for each sequence, please"
    for b, tree in enumerate(draft.trees):
        same = all(torch.equal(rows.raw(b, node), before.raw(b, node)) for node in range(len(tree)))
        assert same, f"{verify.name} wrote into the rows it was given"
    return Verdict(tuple(tuple(path) for path in verdict.paths), tuple(verdict.bonus))


def _possible(verify: Verifier, seq: Seq, tree: Tree, path: Sequence[int], bonus: int, law: NextLaw) -> None:
    """Whether the path runs down the tree, and (if lossless) whether the target could say, or at 0 says, all of it."""
    rows = rows_of(Draft((tree,)), [seq], law)
    at = 0
    for node in (*path, None):
        token = bonus if node is None else tree.tokens[node]
        if node is not None:
            assert tree.parents[node] == at, f"{verify.name}: node {node} of path {list(path)} does not follow {at}"
        chance = float(rows.probs(0, at)[token])
        assert chance > 0 or not verify.lossless, (
            f"{verify.name} emitted token {token}, which the target never says here"
        )
        at = at if node is None else node
    if seq.params.greedy and verify.lossless:
        right = [child for child in range(1, len(tree)) if tree.parents[child] == at and tree.tokens[child] == bonus]
        assert not right, f"{verify.name}: greedy refused node {right[0]}, which is the likeliest token"


def rows_of(draft: Draft, seqs: Sequence[Seq], law: NextLaw) -> Rows:
    """The rows that a toy target of this law returns for a draft."""
    items = [Item(seq, len(seq) - 1, len(seq) - 1, tree) for seq, tree in zip(seqs, draft.trees, strict=True)]
    logits = [
        law([*item.seq.tokens, *(item.nodes.tokens[n] for n in item.nodes.path(node))])
        for item in items
        for node in range(len(item.nodes))
    ]
    return Rows(items, torch.stack(logits), logits[0].shape[0])
