"""What of a draft is worth scoring: a drafter may say anything, and what cannot be a guess is dropped here.

What is dropped depends on the draft, the plan and the hooks alone. Of a drawn tree all children of a node go or none,
by the node's own path and row and not by which of them were drawn: leaving out what was drawn would bend the law.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forerun.core.draft import Draft, Law, Tree
from forerun.core.errors import BrokenInvariant, said
from forerun.core.params import permits
from forerun.core.plan import Plan
from forerun.core.seq import Seq

ROUNDING = 1e-4
"""How far from 1 the sum of a row of probabilities may be."""


def sound(draft: Draft, seqs: Sequence[Seq], plan: Plan, laws: frozenset[Law], vocab_size: int) -> Draft:
    """The draft as far as it can be used; what was wrong with the rest is noted on its sequence (`Seq.drop`).

    BrokenInvariant if it has not one tree for each sequence.
    """
    if len(draft) != len(seqs):
        raise BrokenInvariant(f"{len(draft)} trees were drafted for {len(seqs)} sequences")
    return Draft(tuple(_sound(tree, seq, plan, laws, vocab_size) for tree, seq in zip(draft.trees, seqs, strict=True)))


def _sound(tree: Tree, seq: Seq, plan: Plan, laws: frozenset[Law], vocab_size: int) -> Tree:
    try:
        if tree.tokens == (seq.last,) and tree.parents == (-1,):
            return tree
        _fits(tree, seq, plan, laws)
        return pruned(tree, seq, vocab_size)
    except Exception as error:
        seq.drop(said(error))
        return Tree.root(seq.last)


def _fits(tree: Tree, seq: Seq, plan: Plan, laws: frozenset[Law]) -> None:
    """Raise BrokenInvariant unless this is a tree under the newest token, of a declared law and within the plan."""
    odd = [token for token in tree.tokens if not isinstance(token, int)]
    if odd:
        raise BrokenInvariant(f"a draft is of token ids, got {odd[0]!r}")
    if tree.tokens[:1] != (seq.last,):
        raise BrokenInvariant(f"a draft has the root {tree.tokens[:1]}, the newest token is {seq.last}")
    tree.check()
    if tree.law not in laws:
        raise BrokenInvariant(f"a draft of the law {tree.law!r}, declared are {sorted(laws)}")
    if tree.drafted > plan.most(seq.room) or tree.depth > seq.room or not (plan.width > 1 or tree.is_chain):
        raise BrokenInvariant(
            f"a draft of {tree.drafted} nodes to depth {tree.depth} goes beyond the plan: {plan.most(seq.room)} nodes "
            f"to depth {min(plan.depth, seq.room)}, {plan.width} children a node"
        )


def pruned(tree: Tree, seq: Seq, vocab_size: int) -> Tree:
    """The tree without what cannot be used: ids that do not exist, rows that are no distributions, and whatever follows
    a token that ends the answer or that the grammar does not know how to go on from.

    Nodes that a rule chose may go one by one. Where chance chose them they stay to be refused, or go with all siblings.
    """
    children = tree.children()
    answers: dict[int, Tensor | list[int] | None] = {}  # the grammar's, by parent: siblings ask once
    legal = {0}

    def grows(parent: int) -> bool:
        """Whether there may be anything below."""
        if parent not in legal:
            return False
        tokens = [tree.tokens[child] for child in children[parent]]
        strange = [token for token in tokens if not 0 <= token < vocab_size]
        if strange:
            seq.drop(f"token {strange[0]} was drafted, the vocabulary has 0..{vocab_size - 1}")
        if tree.drawn and (strange or not _drawn_from(tree, parent, tokens, vocab_size, seq)):
            return False
        asks = seq.params.allowed is not None
        answers[parent] = _answer(seq, [tree.tokens[node] for node in tree.path(parent)]) if asks else None
        return not _is_empty(answers[parent])

    fertile: dict[int, bool] = {}

    def wanted(node: int) -> bool:
        token, parent = tree.tokens[node], tree.parents[node]
        if parent not in fertile:
            fertile[parent] = grows(parent)
        if not fertile[parent] or not 0 <= token < vocab_size:
            return False
        if token not in seq.stop_ids and permits(answers[parent], token):
            legal.add(node)
        return node in legal or tree.drawn

    return tree.keep(wanted)


def _answer(seq: Seq, path: Sequence[int]) -> Tensor | list[int] | None:
    """What the grammar allows after `path`; nothing where it fails, which `ask` has noted."""
    try:
        return seq.ask(path)
    except Exception:
        return []


def _is_empty(answer: Tensor | list[int] | None) -> bool:
    return answer is not None and not (answer.any() if isinstance(answer, Tensor) else answer)


def _drawn_from(tree: Tree, node: int, tokens: Sequence[int], vocab_size: int, seq: Seq) -> bool:
    """Whether the children of `node` can have been drawn from its row; what is wrong with it is noted."""
    row = tree.q[node]
    if row.shape != (vocab_size,) or row.dtype not in (torch.float32, torch.float64):
        seq.drop(f"a draft's row is {row.dtype} {list(row.shape)}, allowed float32 or float64 [{vocab_size}]")
        return False
    low, total = torch.stack((row.min(), row.sum())).tolist()
    if not (low >= 0.0 and abs(total - 1.0) <= ROUNDING):  # of NaN neither is true
        seq.drop(f"a draft's row is no distribution: its smallest value is {low:g}, its sum {total:g}")
        return False
    if not bool((row[list(tokens)] > 0.0).all()) or (tree.law == "distinct" and len(set(tokens)) < len(tokens)):
        seq.drop(f"the tokens {list(tokens)} cannot have been drawn from their row by the law {tree.law!r}")
        return False
    return True
