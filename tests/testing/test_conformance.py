"""What an outsider writes: a drafter in one short class, and one line of test."""

from __future__ import annotations

from forerun.core.draft import Draft, Tree
from forerun.testing import conformance
from forerun.testing.conformance import check_drafter


class Echo:
    """Says the last token again."""

    name = "echo"
    laws = frozenset({"chosen"})
    taps = ()

    def begin(self, seq):
        pass

    def read(self, rows):
        pass

    def draft(self, seqs, plan, noise):
        return Draft(tuple(Tree.chain(seq.last, [seq.last] * min(plan.depth, plan.nodes, seq.room)) for seq in seqs))

    def accept(self, seqs, draft, rows, verdict):
        pass

    def end(self, seq):
        pass


def test_one_line():
    assert check_drafter(Echo).drafted > 0


def test_the_public_names():
    assert set(conformance.__all__) <= set(vars(conformance))
