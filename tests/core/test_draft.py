import pytest
import torch

from forerun.core.draft import Draft, Tree, Verdict
from forerun.core.errors import BrokenInvariant

TREE = Tree((9, 1, 2, 3, 4), (-1, 0, 0, 1, 3))


def test_a_chain_is_a_tree_with_one_branch():
    chain = Tree.chain(7, [1, 2, 3])
    assert chain.tokens == (7, 1, 2, 3)
    assert chain.is_chain
    assert not TREE.is_chain
    assert chain.depths() == [0, 1, 2, 3]


def test_paths_depths_and_children_agree():
    assert TREE.depths() == [0, 1, 1, 2, 3]
    assert TREE.path(4) == [1, 3, 4]
    assert TREE.path(0) == []
    assert TREE.children() == [[1, 2], [3], [], [4], []]
    assert TREE.drafted == 4


def test_keep_drops_whole_branches_and_renumbers():
    kept = TREE.keep(lambda node: node != 1)
    assert kept == Tree((9, 2), (-1, 0))
    assert TREE.keep(lambda node: True) is TREE


def test_keep_renumbers_the_rows_too():
    rows = {node: torch.full((2,), float(node)) for node in range(3)}
    kept = Tree((9, 1, 2, 3), (-1, 0, 0, 2), "distinct", rows).keep(lambda node: node != 1)
    assert kept.tokens == (9, 2, 3)
    assert {node: float(row[0]) for node, row in kept.q.items()} == {0: 0.0, 1: 2.0}


@pytest.mark.parametrize(
    "tree",
    [
        Tree((), ()),
        Tree((1, 2), (-1, 1)),
        Tree((1, 2), (0, 0)),
        Tree((1, 2), (-1, -1)),
        Tree((1, 2), (-1, 0), "sampled"),
    ],
)
def test_check_refuses_what_is_not_a_tree(tree):
    with pytest.raises(BrokenInvariant):
        tree.check()


def test_a_verdict_emits_the_path_and_the_bonus():
    draft = Draft((TREE, Tree.root(5)))
    verdict = Verdict(((1, 3), ()), (8, 6))
    assert verdict.emitted(draft) == [[1, 3, 8], [6]]
    assert verdict.accepted == (2, 0)
    assert draft.sizes == (5, 1)
