"""What of a draft is worth scoring."""

from forerun.core.draft import Tree
from forerun.core.params import permits
from forerun.core.seq import Seq


def sound(tree: Tree, seq: Seq, vocab_size: int) -> Tree:
    """The draft without what cannot be used: ids that do not exist, and whatever follows a token that ends the answer.

    Nodes that a rule chose may simply go. Where chance chose them they must stay to be refused (leaving out what was
    drawn would bend the law), so only what hangs below goes.
    """
    stops, allowed = seq.stop_ids, seq.params.allowed
    if len(tree) == 1:
        return tree
    chosen = tree.law == "chosen"
    legal: dict[int, bool] = {0: True}

    def wanted(node: int) -> bool:
        token, parent = tree.tokens[node], tree.parents[node]
        if not 0 <= token < vocab_size or not legal.get(parent, False):
            return False
        legal[node] = token not in stops and (allowed is None or _permits(seq, tree, node))
        return legal[node] or not chosen

    return tree.keep(wanted)


def _permits(seq: Seq, tree: Tree, node: int) -> bool:
    """Whether the grammar lets this node's token follow its parent's path."""
    assert seq.params.allowed is not None
    path = [tree.tokens[n] for n in tree.path(tree.parents[node])]
    answer = seq.params.allowed([*seq.token_ids, *path])
    return permits(answer, tree.tokens[node])
