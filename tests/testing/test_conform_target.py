"""The kit must see a fault: each of these targets breaks one promise."""

from __future__ import annotations

import pytest

from forerun.core.draft import Tree
from forerun.core.errors import BrokenInvariant
from forerun.testing.conformance import check_target
from forerun.testing.toy import ToyTarget, table_law

LAW = table_law(16, order=64)


def test_a_toy_conforms():
    check_target(lambda: ToyTarget(LAW, 16, max_len=128, slots=400))


def test_a_toy_of_chains_conforms():
    class Chains(ToyTarget):
        def _feed(self, item, keep):
            assert item.nodes.is_chain or not item.tree
            return super()._feed(item, keep)

    def make():
        toy = Chains(LAW, 16, max_len=128)
        toy.spec = type(toy.spec)("toy", 16, 128, 0, 0, "float64", "cpu", "toy", trees=False)
        return toy

    check_target(make)


class SiblingsSeen(ToyTarget):
    """Rows of a tree as if it were a chain."""

    def _feed(self, item, keep):
        if item.tree is None or item.tree.is_chain:
            return super()._feed(item, keep)
        chain = Tree(item.tree.tokens, tuple(range(-1, len(item.tree) - 1)))
        return super()._feed(type(item)(item.seq, item.start, item.stop, chain, item.seen), keep)


class Forgetful(ToyTarget):
    """Commits the root alone."""

    def commit(self, seqs, paths):
        super().commit(seqs, [[] for _ in paths])


class WrongPath(ToyTarget):
    """Commits the first nodes instead of the path."""

    def commit(self, seqs, paths):
        super().commit(seqs, [list(range(1, len(path) + 1)) for path in paths])


class Leaking(ToyTarget):
    """Gives back one token less than it took."""

    def release(self, seq):
        super().release(seq)
        self.slots -= 1


class Stale(ToyTarget):
    """Keeps what it should have cut, under another name."""

    def truncate(self, seq, length):
        kept = self._held[seq][length - 1 : length + 1]
        super().truncate(seq, length)
        self._held[seq][-2:] = kept


class Ghost(ToyTarget):
    """Remembers a released sequence's tokens when it comes back."""

    def begin(self, seq):
        super().begin(seq)
        return min(3, len(seq) - 1) if seq.output else 0


@pytest.mark.parametrize("fault", [SiblingsSeen, Forgetful, WrongPath, Leaking, Stale, Ghost])
def test_faults_are_found(fault):
    with pytest.raises((AssertionError, BrokenInvariant)) as found:
        check_target(lambda: fault(LAW, 16, max_len=128, slots=400))
    assert str(found.value)
