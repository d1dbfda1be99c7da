"""What of a draft is worth scoring."""

from collections.abc import Sequence

from torch import Tensor

from forerun.core.draft import Draft, Tree
from forerun.core.errors import BrokenInvariant
from forerun.core.params import permits
from forerun.core.seq import Seq


def sound(draft: Draft, seqs: Sequence[Seq], vocab_size: int) -> Draft:
    """The draft with `pruned` trees; BrokenInvariant if it has not one for each sequence."""
    if len(draft) != len(seqs):
        raise BrokenInvariant(f"the drafter made {len(draft)} trees for {len(seqs)} sequences")
    return Draft(tuple(pruned(tree, seq, vocab_size) for tree, seq in zip(draft.trees, seqs, strict=True)))


def pruned(tree: Tree, seq: Seq, vocab_size: int) -> Tree:
    """The tree without what cannot be used: ids that do not exist, and whatever follows a token that ends the answer.

    Nodes that a rule chose may simply go. Where chance chose them they must stay to be refused (leaving out what was
    drawn would bend the law), so only what hangs below goes. Raises BrokenInvariant for a draft that is no tree under
    the newest token: scored as it is, it would change the text.
    """
    if tree.tokens[:1] != (seq.last,):
        raise BrokenInvariant(f"the draft of {seq} has the root {tree.tokens[:1]}, the newest token is {seq.last}")
    if len(tree) == 1:
        return tree
    tree.check()
    answers: dict[int, Tensor | list[int] | None] = {}  # the grammar's, by parent: siblings ask once
    legal = {0}

    def allows(token: int, parent: int) -> bool:
        if seq.params.allowed is None:
            return True
        if parent not in answers:
            answers[parent] = seq.ask([tree.tokens[n] for n in tree.path(parent)])
        return permits(answers[parent], token)

    def wanted(node: int) -> bool:
        token, parent = tree.tokens[node], tree.parents[node]
        if not 0 <= token < vocab_size or parent not in legal:
            return False
        if token not in seq.stop_ids and allows(token, parent):
            legal.add(node)
        return node in legal or tree.drawn

    return tree.keep(wanted)
